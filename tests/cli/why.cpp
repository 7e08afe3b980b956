#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or can't search") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <utility>

using namespace program;
using nlohmann::json;

namespace {

/// The output of `why --json` for a plan of the problem.
json reasons(const std::string& problem, const std::string& plan_limit = "1", const std::string& time_limit = "0.5") {
    const workplace place;
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", plan_limit, "--out", place / "s.json"}).status == 0);
    const auto result = run({"why", problem, place / "s.json", "--json", "--time-limit", time_limit, "--threads", "1"});
    REQUIRE_MESSAGE(result.status == 0, result);
    return json::parse(result.out);
}

const json& tried(const json& reasons, const std::string& what) {
    for (const auto& entry : reasons["planned_again"])
        if (entry["with"] == what) return entry;
    FAIL("not tried: " << what);
    return reasons;
}

} // namespace

TEST_CASE("why: where memory is the cause, the step is shorter without its limit") {
    const auto said = reasons(data("problems/unit-p4-m8-mem050.json"));
    CHECK(said["schedule"]["objective"] == 41.0);
    CHECK(said["schedule"]["idle"]["memory"] > 0.0);
    CHECK(said["schedule"]["idle"]["copy"] == 0.0);
    CHECK(tried(said, "as it is")["bound"] == 41.0);
    CHECK(tried(said, "no memory limit")["objective"] == 27.0);
    CHECK(said["published"]["objective"] == 51.0);
    CHECK(said["planned_again"].size() == 2); // no transfers, and messages take no time
}

TEST_CASE("why: the causes of each rank add up to what it doesn't compute") {
    for (const auto* file : {"two-ranks.json", "stored.json", "problems/offload-p4-m8-mem050-k100.json"}) {
        CAPTURE(file);
        const auto said = reasons(data(file));
        for (const auto& rank : said["ranks"]) {
            double sum = 0.0;
            for (const auto& [cause, length] : rank["by_cause"].items())
                sum += length.get<double>();
            CHECK(sum == doctest::Approx(rank["idle"].get<double>()));
            CHECK(sum + rank["computes"].get<double>() == doctest::Approx(said["schedule"]["objective"].get<double>()));
        }
        CHECK(tried(said, "transfers that take no time")["objective"] <= said["schedule"]["objective"]);
    }
}

TEST_CASE("why: without what a rank waits for the best step is shorter, or as long because something else binds") {
    const std::pair<const char*, const char*> remedies[]{{"memory", "no memory limit"},
                                                         {"copy", "transfers that take no time"},
                                                         {"neighbour", "messages that take no time"}};
    std::size_t shorter = 0;
    for (const auto* file : {"problems/unit-p2-m4-mem050.json", "problems/offload-p2-m4-mem050-k050.json",
                             "problems/offload-p2-m4-mem050-k100.json"}) {
        CAPTURE(file);
        const auto said = reasons(data(file), "30", "30"); // each search ends with its proof
        const double now = said["schedule"]["objective"];
        constexpr double slack = 1e-6;
        CHECK(tried(said, "as it is")["bound"].get<double>() >= now * (1.0 - slack));
        for (const auto& entry : said["planned_again"])
            for (const auto& [cause, what] : remedies) {
                if (entry["with"] != what || said["schedule"]["idle"][cause] == 0.0) continue;
                const bool is_shorter = entry["objective"].get<double>() < now * (1.0 - slack);
                const bool is_bound = entry["bound"].get<double>() >= now * (1.0 - slack);
                CHECK_MESSAGE(is_shorter != is_bound, what << ": " << entry.dump());
                shorter += is_shorter ? 1 : 0;
            }
    }
    CHECK(shorter >= 5);
}

TEST_CASE("why: if a rank has more work than the others, the step with level work is shorter") {
    const workplace place;
    const auto stage = [](int rank, double factor) {
        return json{{"rank", rank},
                    {"forward", factor},
                    {"backward_input", factor},
                    {"backward_weight", factor},
                    {"activation", 1.0}};
    };
    const auto problem = [&](double of_last) {
        const json p{{"format", "optpipe.problem/2"},
                     {"ranks", 2},
                     {"microbatches", 6},
                     {"stages", {stage(0, 1.0), stage(1, of_last)}}};
        return place.write("problem.json", p.dump());
    };
    const auto said = reasons(problem(3.0), "30", "30"); // each search ends with its proof
    const double now = said["schedule"]["objective"];
    CHECK(tried(said, "as it is")["bound"] == now);
    CHECK(now >= 54.0); // the work of the last rank
    const double level = tried(said, "the same work on every rank")["objective"];
    CHECK(level >= 36.0);
    CHECK(level < 45.0);
    const auto even = reasons(problem(1.0), "30", "30");
    CHECK(even["planned_again"].size() == 1); // no memory limit, transfers or messages to change either
}

TEST_CASE("why: a text for people, and a schedule that breaks rules is refused with them") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    const auto text = run({"why", problem, place / "s.json", "--time-limit", "0.2"});
    CHECK_MESSAGE(text.status == 0, text);
    for (const auto* part : {"step 152", "computes [ms]", "no schedule is shorter", "no memory limit", "peak memory"})
        CHECK_MESSAGE(text.out.find(part) != std::string::npos, part << "\n" << text);
    auto broken = json::parse(place.read("s.json"));
    broken["operations"].erase(broken["operations"].begin());
    const auto refused = run({"why", problem, place.write("broken.json", broken.dump())});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.err.find("broken.json: ") != std::string::npos, refused);
}

#endif
