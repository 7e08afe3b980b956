#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program, or its solver, is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// Two ranks and 32 samples; each operation takes half a unit and a half for each sample, a stash as much as samples.
std::string problem(const workplace& place, std::size_t microbatches, double limit) {
    const double samples = 32.0 / static_cast<double>(microbatches);
    json stages;
    for (const int r : {0, 1})
        stages.push_back({{"rank", r},
                          {"forward", 0.5 + 0.5 * samples},
                          {"backward_input", 0.5 + 0.5 * samples},
                          {"backward_weight", 0.5 + 0.5 * samples},
                          {"activation", samples}});
    return place.write("m" + std::to_string(microbatches) + ".json", json{{"format", "optpipe.problem/1"},
                                                                          {"name", "sizes"},
                                                                          {"ranks", 2},
                                                                          {"microbatches", microbatches},
                                                                          {"stages", stages},
                                                                          {"memory_limit", limit}}
                                                                         .dump());
}

} // namespace

TEST_CASE("plan chooses the number of microbatches: too few lack memory, and too many take longer") {
    const workplace place;
    const auto result =
        run({"plan", problem(place, 4, 12.0), "--costs-at", problem(place, 8, 12.0), "--microbatches", "2,4,8,32",
             "--time-limit", "1", "--threads", "1", "--out", place / "s.json", "--out-problem", place / "p.json"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "microbatches"), result);
    CHECK_MESSAGE(contains(result.out, "dropped          97"), result);
    CHECK_MESSAGE(contains(result.out, "memory_limit[0]"), result);
    const auto chosen = json::parse(place.read("p.json"));
    CHECK(chosen["microbatches"] == 8);
    CHECK(run({"check", place / "p.json", place / "s.json"}).status == 0);
    const auto alone = run({"plan", place / "m8.json", "--time-limit", "1", "--threads", "1", "--json"});
    CHECK(json::parse(place.read("s.json"))["objective"] == json::parse(alone.out)["objective"]);
}

TEST_CASE("plan for several sizes as JSON says which number was chosen, and what became of the others") {
    const workplace place;
    const auto result =
        run({"plan", problem(place, 4, 12.0), "--costs-at", problem(place, 8, 12.0), "--microbatches", "2,4,8,32",
             "--time-limit", "1", "--threads", "1", "--json", "--out-problem", place / "p.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    const auto told = json::parse(result.out);
    CHECK((told["microbatches"] == 8 && json::parse(place.read("p.json"))["microbatches"] == 8));
    const auto& tried = told["alternatives"];
    REQUIRE(tried.size() == 4);
    CHECK((tried[2]["microbatches"] == 8 && tried[2]["objective"] == told["objective"]));
    CHECK(contains(tried[0]["reason"], "memory_limit[0]"));
    CHECK(!tried[0].contains("bound"));
    CHECK(contains(tried[3]["reason"], "dropped"));
    CHECK((tried[3]["bound"] > told["objective"] && told["bound_of_alternatives"] <= told["bound"]));
}

TEST_CASE("plan for several sizes: bad input is one message") {
    const workplace place;
    const auto four = problem(place, 4, 12.0);
    const auto eight = problem(place, 8, 12.0);
    const auto refused = [&](std::vector<std::string> arguments, const std::string& why) {
        arguments.insert(arguments.begin(), {"plan", four});
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.says({why})), result);
    };
    refused({"--microbatches", "4,8"}, "--costs-at");
    refused({"--costs-at", four}, "microbatches: are equally many in two problems");
    refused({"--costs-at", data("chunks.json")}, "differs from that of the first problem");
    refused({"--costs-at", eight, "--microbatches", "0"}, "--microbatches");
    refused({"--costs-at", eight, "--method", "1f1b"}, "--method: not with --costs-at");
    refused({"--costs-at", eight, "--out-problem", eight}, "would replace the input");
    refused({"--costs-at", eight, "--set", "memory_limit=0.5"}, "memory_limit[0]");
}

#endif
