#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or can't search") {}
#else

#include "cli/program.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include <optpipe/io/json.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// The output of `whatif --json` for a plan of the problem; each search ends with its proof if the problem is small.
json gains(const std::string& problem, const std::vector<std::string>& more = {}) {
    const workplace place;
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "30", "--out", place / "s.json"}).status == 0);
    std::vector<std::string> arguments{"whatif",       problem, place / "s.json", "--json",
                                       "--time-limit", "30",    "--threads",      "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run(arguments);
    REQUIRE_MESSAGE(result.status == 0, result);
    return json::parse(result.out);
}

const json& with(const json& gains, const std::string& what) {
    for (const auto& entry : gains["changes"])
        if (entry["with"] == what) return entry;
    FAIL("not there: " << what);
    return gains;
}

constexpr double slack = 1e-6;

/// More of a resource makes neither bound nor step longer, and no step is below its bound.
void check_signs(const json& said) {
    const double now = said["objective"];
    const double again = said["planned_again"];
    CHECK(again <= now * (1.0 + slack));
    for (const auto& entry : said["changes"]) {
        CAPTURE(entry.dump());
        const bool has_estimate = !entry["estimate"].is_null(); // else there was no time
        if (has_estimate) {
            CHECK(entry["estimate"].get<double>() <= now * (1.0 + slack));
            CHECK(entry["estimate"].get<double>() > 0.0);
        }
        if (entry["objective"].is_null()) continue;
        CHECK(entry["objective"].get<double>() <= again * (1.0 + slack));
        if (has_estimate) CHECK(entry["bound"].get<double>() <= entry["objective"].get<double>() * (1.0 + slack));
    }
}

} // namespace

TEST_CASE("whatif: where memory binds, more of it brings what the bound says") {
    const auto said = gains(data("two-ranks.json"));
    check_signs(said);
    const auto& more = with(said, "1 GB more on every rank");
    CHECK(said["objective"].get<double>() == doctest::Approx(152.0));
    CHECK(more["estimate"].get<double>() == doctest::Approx(116.4));
    CHECK(more["objective"].get<double>() == doctest::Approx(116.4));
    std::size_t planned = 0;
    for (const auto& entry : said["changes"])
        planned += entry["objective"].is_null() ? 0 : 1;
    CHECK(planned == 5); // as many as --most says
    CHECK(said["changes"].front()["estimate"] <= said["changes"].back()["estimate"]);
}

TEST_CASE(
    "whatif: no change makes the step longer than the plan of the problem as it is, however poor the given plan") {
    const workplace place;
    const auto problem = data("problems/v-unit-p4-m12-k6.json");
    REQUIRE(run({"plan", problem, "--method", "zb-v", "--quiet", "--out", place / "s.json"}).status == 0);
    const auto result =
        run({"whatif", problem, place / "s.json", "--json", "--most", "9", "--time-limit", "0.2", "--threads", "1"});
    REQUIRE_MESSAGE(result.status == 0, result);
    check_signs(json::parse(result.out));
}

TEST_CASE("whatif: the amounts are those that were asked for") {
    const auto problem = data("problems/offload-p2-m4-mem050-k100.json");
    const auto said = gains(problem, {"--memory", "0.5", "--speed", "2", "--bandwidth", "4", "--most", "20"});
    check_signs(said);
    for (const auto* what :
         {"0.5 activation more on rank 1", "rank 0: 2 times as fast", "transfers of rank 0: 4 times as fast",
          "transfers of all ranks: 4 times as fast", "messages: 4 times as fast"})
        CHECK(!with(said, what)["objective"].is_null());
    // As fast as before nothing changes.
    const auto same = gains(problem, {"--memory", "0", "--speed", "1", "--bandwidth", "1", "--most", "1"});
    for (const auto& entry : same["changes"])
        CHECK(entry["estimate"].get<double>() == doctest::Approx(same["objective"].get<double>()));
}

TEST_CASE("whatif: the signs are right for problems that are drawn") {
    constexpr std::uint64_t seed = 60;
    std::size_t shorter = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(12); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::make_random_problem(random, {.cells = 6, .offloading_percent = 60}).problem;
        const workplace place;
        const auto said = gains(place.write("problem.json", problem_to_json(p)), {"--most", "4"});
        check_signs(said);
        for (const auto& entry : said["changes"])
            shorter += !entry["objective"].is_null() && entry["objective"] < said["planned_again"] ? 1 : 0;
    }
    CHECK(shorter >= oracle::random_cases(6));
}

TEST_CASE("whatif: a text for people, and a schedule that breaks rules is refused with them") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    const auto text = run({"whatif", problem, place / "s.json", "--time-limit", "0.2", "--most", "1"});
    CHECK_MESSAGE(text.status == 0, text);
    for (const auto* part : {"planned again", "estimate", "1 GB more on every rank"})
        CHECK_MESSAGE(text.out.find(part) != std::string::npos, part << "\n" << text);
    auto broken = json::parse(place.read("s.json"));
    broken["operations"].erase(broken["operations"].begin());
    const auto refused = run({"whatif", problem, place.write("broken.json", broken.dump())});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.err.find("broken.json: ") != std::string::npos, refused);
    CHECK(run({"whatif", problem, place / "s.json", "--speed", "0.5"}).status == 2);
}

#endif
