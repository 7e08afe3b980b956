#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "program/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

TEST_CASE("draw draws what plan draws") {
    const workplace place;
    const auto problem = data("chunks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json", "--svg", place / "plan.svg"}).status == 0);
    const auto result = run({"draw", place / "s.json", "--problem", problem, "--svg", place / "draw.svg"});
    CHECK_MESSAGE((result.status == 0 && result.out.empty() && result.err.empty()), result);
    CHECK(place.read("draw.svg") == place.read("plan.svg"));
}

TEST_CASE("an invalid schedule is drawn, with a note") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    auto document = json::parse(place.read("s.json"));
    document["operations"].erase(document["operations"].begin());
    place.write("s.json", document.dump());
    const auto result = run({"draw", place / "s.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((result.status == 0 && result.says({"note", "0F0"})), result);
    CHECK(place.has("s.svg"));
}

TEST_CASE("what can't be drawn is refused and leaves no picture") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    auto document = json::parse(place.read("s.json"));
    document["operations"][0]["op"] = "9F0";
    place.write("far.json", document.dump());
    const auto before = place.files();
    const auto far = run({"draw", place / "far.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((far.status == 2 && far.says({"far.json", "9F0"})), far);
    const auto missing = run({"draw", place / "none.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((missing.status == 2 && missing.says({"none.json"})), missing);
    const auto full = run({"draw", place / "s.json", "--problem", problem, "--svg", "/dev/full"});
    CHECK_MESSAGE((full.status == 2 && full.says({"/dev/full"})), full);
    CHECK(place.files() == before);
}

#endif
