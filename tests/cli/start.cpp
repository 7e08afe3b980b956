#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or can't search") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

TEST_CASE("a plan begins with a schedule from a file, also where costs have changed") {
    const workplace place;
    const auto first = place / "first.json";
    REQUIRE(run({"plan", data("two-ranks.json"), "--method", "adaptive", "--quiet", "--out", first}).status == 0);
    auto changed = json::parse(content_of(data("two-ranks.json")));
    changed["stages"][0]["forward"] = 2.0 * changed["stages"][0]["forward"].get<double>();
    const auto problem = place.write("changed.json", changed.dump());
    const auto result = run({"plan", problem, "--start", first, "--json"});
    CHECK_MESSAGE(result.status == 0, result);
    const auto text = run({"plan", problem, "--start", first, "--time-limit", "0"});
    CHECK_MESSAGE(text.status == 0, text);
}

TEST_CASE("a bad start is refused with one message") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    const auto first = place / "first.json";
    REQUIRE(run({"plan", problem, "--quiet", "--out", first}).status == 0);
    auto broken = json::parse(place.read("first.json"));
    broken["operations"].erase(0);
    const auto bad = run({"plan", problem, "--start", place.write("bad.json", broken.dump())});
    CHECK_MESSAGE((bad.status == 2 && bad.says({"bad.json", "0F0"})), bad);
    const auto none = run({"plan", problem, "--start", place / "none.json"});
    CHECK_MESSAGE((none.status == 2 && none.says({"none.json"})), none);
    const auto method = run({"plan", problem, "--start", first, "--method", "1f1b"});
    CHECK_MESSAGE((method.status == 2 && method.says({"--start", "--method"})), method);
    const auto itself = run({"plan", problem, "--start", first, "--out", first});
    CHECK_MESSAGE((itself.status == 2 && itself.says({"--out", "--start"})), itself);
}
#endif
