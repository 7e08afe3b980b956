#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

TEST_CASE("a plan as JSON has all that the text says") {
    const workplace place;
    const auto result = run({"plan", data("problems/unit-p4-m8-mem075.json"), "--json", "--out", place / "s.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    const auto told = json::parse(result.out);
    const auto written = json::parse(place.read("s.json"));
    CHECK(told["problem"] == "unit-p4-m8-mem075");
    for (const auto* field : {"method", "objective", "bound", "gap", "bubble_rate", "peak_memory"})
        CHECK_MESSAGE(told[field] == written[field], field);
    CHECK(told["offloads"] == 0);
    CHECK((told["time_unit"].is_string() && told["memory_unit"].is_string()));
#if defined(OPTPIPE_HAS_MILP)
    CHECK(told["status"] == "optimal");
    CHECK((told["seconds"] >= 0.0 && told["from_cache"] == false));
    CHECK(told["search"][0]["name"] == "structure");
    CHECK(told["search"][0]["bound"].is_number());
#endif
    bool has_objective = false;
    bool has_reason = false;
    for (const auto& method : told["methods"]) {
        CHECK((method["method"].is_string() && method["seconds"].is_number()));
        CHECK(method.contains("objective") != method.contains("reason"));
        has_objective = has_objective || method.contains("objective");
        has_reason = has_reason || method.contains("reason");
    }
    CHECK((has_objective && has_reason));
}

TEST_CASE("the plan of one method as JSON, and that there is none") {
    const auto one = run({"plan", data("two-ranks.json"), "--method", "adaptive", "--json"});
    REQUIRE_MESSAGE(one.status == 0, one);
    const auto told = json::parse(one.out);
    CHECK((told["status"] == "built" && told["method"] == "adaptive" && told["objective"] == 152.0));
    CHECK((told["offloads"] == 4 && told["peak_memory"] == json{1.5, 1.5}));
    CHECK((told["time_unit"] == "ms" && told["memory_unit"] == "GB"));

    const auto none = run({"plan", data("small-host.json"), "--json"});
    CHECK_MESSAGE((none.status == 3 && none.says({"rank 0 needs 4 GB of memory"})), none);
    const auto refused = json::parse(none.out);
    CHECK((refused["problem"] == "small-host" && refused["status"] == "no schedule"));
    CHECK(contains(refused["reason"].get<std::string>(), "rank 0 needs 4 GB of memory"));
}

TEST_CASE("what check finds, as JSON") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
    const auto valid = run({"check", problem, place / "s.json", "--json"});
    REQUIRE_MESSAGE((valid.status == 0 && valid.err.empty()), valid);
    const auto told = json::parse(valid.out);
    CHECK((told["problem"] == "two-ranks" && told["valid"] == true && told["violations"].empty()));
    CHECK((told["objective"] == 152.0 && told["offloads"] == 4 && told["peak_memory"] == json{1.5, 1.5}));
    CHECK((told["time_unit"] == "ms" && told["memory_unit"] == "GB" && told["bubble_rate"] > 0.3));

    auto document = json::parse(place.read("s.json"));
    for (auto& entry : document["operations"]) // more violations than the text shows
        entry["end"] = 1.5 * entry["end"].get<double>();
    const auto invalid = run({"check", problem, place.write("bad.json", document.dump()), "--json"});
    REQUIRE_MESSAGE((invalid.status == 1 && invalid.err.empty()), invalid);
    const auto wrong = json::parse(invalid.out);
    CHECK((wrong["valid"] == false && !wrong.contains("objective")));
    const auto as_text = run({"check", problem, place / "bad.json"});
    CHECK_MESSAGE(contains(as_text.out, "INVALID: " + std::to_string(wrong["violations"].size()) + " violations"),
                  as_text);
    CHECK(wrong["violations"].size() > 20);
    for (const auto& violation : wrong["violations"])
        CHECK((violation["place"].is_string() && !violation["reason"].get<std::string>().empty()));
}

#endif
