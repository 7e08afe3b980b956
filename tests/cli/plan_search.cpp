#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "optpipe/io/json.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

double objective_in(const workplace& place, const std::string& file) {
    return json::parse(place.read(file))["objective"].get<double>();
}

/// The output without all that depends on a clock.
std::string without_times(const std::string& out) {
    std::string kept;
    for (std::size_t at = 0; at < out.size();) {
        const auto end = std::min(out.find('\n', at), out.size() - 1) + 1;
        const auto line = out.substr(at, end - at);
        if (!line.ends_with(" s\n") && !contains(line, " after ")) kept += line;
        at = end;
    }
    return kept;
}

} // namespace

TEST_CASE("the plan says which strategy found what, why it ended, and what the best published schedule is") {
    const auto result = run({"plan", data("problems/unit-p4-m8-mem075.json"), "--threads", "2"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "optimal after "), result);
    CHECK_MESSAGE(contains(result.out, "the best published schedule is zb-auto's, 37"), result);
    CHECK_MESSAGE(contains(result.out, "structure "), result);
    CHECK_MESSAGE(contains(result.out, "equal to the lower bound, so optimal"), result);
    CHECK_MESSAGE(contains(result.out, "\nothers: zb-auto +19.4 %"), result);
}

TEST_CASE("a proven plan is proven whatever the limit, and the number of threads changes nothing") {
    const auto problem = data("problems/offload-p3-m6-mem050-k100.json");
    const auto first = run({"plan", problem, "--threads", "1"});
    CHECK_MESSAGE(first.status == 0, first);
    const auto second = run({"plan", problem, "--threads", "2"});
    CHECK(without_times(first.out) == without_times(second.out));
    const workplace place;
    REQUIRE(
        run({"plan", problem, "--time-limit", "60", "--threads", "2", "--quiet", "--out", place / "s.json"}).status ==
        0);
    const auto document = optpipe::read_schedule(place / "s.json");
    REQUIRE(document.bound);
    CHECK(document.bound->value() == doctest::Approx(504.3));
    CHECK(objective_in(place, "s.json") == doctest::Approx(504.3));
    CHECK(run({"check", problem, place / "s.json"}).status == 0);
}

TEST_CASE("what a search with a time limit writes is valid, deterministic or not") {
    const workplace place;
    for (const std::string name : {"two-ranks.json", "v-three-ranks.json", "chunks.json", "whole-backward.json"})
        for (const bool deterministic : {false, true}) {
            std::vector<std::string> arguments{"plan",    data(name), "--time-limit",  "0.3",
                                               "--quiet", "--out",    place / "s.json"};
            if (deterministic) arguments.emplace_back("--deterministic");
            const auto planned = run(arguments);
            CHECK_MESSAGE(planned.status == 0, planned);
            const auto checked = run({"check", data(name), place / "s.json"});
            CHECK_MESSAGE(checked.status == 0, checked);
        }
}

TEST_CASE("a gap that is wide enough ends the search") {
    const auto result = run({"plan", example("llama2-7b-4k-p4.json"), "--gap", "0.9"});
    CHECK_MESSAGE((result.status == 0 && contains(result.out, "gap reached after")), result);
    for (const auto* wrong : {"-1", "nan", "inf", "x", "2"})
        CHECK(run({"plan", example("llama2-7b-4k-p4.json"), "--gap", wrong}).status == 2);
}

TEST_CASE("methods and strategies may be left out; unknown ones are refused with a list") {
    const auto problem = data("problems/unit-p3-m6-mem100.json");
    const auto without = run({"plan", problem, "--without", "zb-h1,zb-h2,zb-auto"});
    CHECK_MESSAGE((without.status == 0 && !contains(without.out, "zb-h1")), without);
    const auto refused = run({"plan", problem, "--without", "nobody"});
    CHECK_MESSAGE((refused.status == 2 && refused.says({"there is no \"nobody\"", "1f1b", "cp", "local-search"})),
                  refused);
}

TEST_CASE("progress is shown where it is asked for, on one line that is wiped in the end") {
    const auto result = run({"plan", example("llama2-7b-4k-p4.json"), "--time-limit", "1", "--progress", "--quiet"});
    CHECK_MESSAGE((result.status == 0 && result.out.empty()), result);
    CHECK_MESSAGE(contains(result.err, "bound "), result);
    CHECK(!contains(result.err, "\n"));
    CHECK(result.err.ends_with(" \r"));
}

TEST_CASE("plans are kept in a folder, and found again") {
    const workplace place;
    const auto cache = place / "cache";
    const auto problem = data("problems/unit-p4-m8-mem075.json");
    const auto first = run({"plan", problem, "--cache", cache, "--out", place / "a.json"});
    REQUIRE_MESSAGE(first.status == 0, first);
    CHECK(!contains(first.out, "cache"));
    const auto second = run({"plan", problem, "--cache", cache, "--out", place / "b.json"});
    CHECK_MESSAGE((second.status == 0 && second.err.empty() && contains(second.out, "cache ")), second);
    // Its bound is lowered by the possible rounding error of units.
    CHECK(json::parse(place.read("a.json"))["operations"] == json::parse(place.read("b.json"))["operations"]);

    CHECK_MESSAGE(contains(second.out, "; the plan is from cache"), second);

    for (const auto& entry : fs::recursive_directory_iterator{cache})
        if (entry.is_regular_file()) std::ofstream{entry.path()} << "damaged";
    const auto third = run({"plan", problem, "--cache", cache, "--quiet", "--out", place / "c.json"});
    CHECK_MESSAGE((third.status == 0 && third.says({"note: plan cache", "is damaged"})), third);
    CHECK(place.read("a.json") == place.read("c.json"));

    place.write("file", "");
    const auto unusable = run({"plan", problem, "--cache", place / "file", "--quiet", "--out", place / "d.json"});
    CHECK_MESSAGE((unusable.status == 0 && unusable.says({"can't be created"})), unusable);
    CHECK(place.read("a.json") == place.read("d.json"));
}

TEST_CASE("plans with storage options are kept, and found again") {
    const workplace place;
    const auto plan = [&](const char* out) {
        return run({"plan", data("stored.json"), "--cache", place / "cache", "--out", place / out});
    };
    const auto first = plan("a.json");
    REQUIRE_MESSAGE(first.status == 0, first);
    CHECK(!contains(first.out, "cache"));
    const auto second = plan("b.json");
    CHECK_MESSAGE((second.status == 0 && second.err.empty()), second);
    CHECK_MESSAGE(contains(second.out, "; the plan is from cache"), second);
    CHECK(json::parse(place.read("a.json"))["operations"] == json::parse(place.read("b.json"))["operations"]);
    const auto checked = run({"check", data("stored.json"), place / "b.json"});
    CHECK_MESSAGE((checked.status == 0 && checked.err.empty()), checked);
}

TEST_CASE("with a time limit a kept plan is where the search begins, and it goes on to the limit") {
    const workplace place;
    const std::vector<std::string> plan{
        "plan",          example("llama2-7b-4k-p4.json"), "--time-limit", "1", "--cache", place / "cache", "--out",
        place / "s.json"};
    REQUIRE(run(plan).status == 0);
    const auto before = objective_in(place, "s.json");
    const auto second = run(plan);
    CHECK_MESSAGE((second.status == 0 && contains(second.out, "time limit after ")), second);
    CHECK_MESSAGE((contains(second.out, "; the plan is from cache") ||
                   contains(second.out, "; the search began with a plan from cache")),
                  second);
    CHECK(objective_in(place, "s.json") <= before * (1.0 + 1e-12));
}

#endif
