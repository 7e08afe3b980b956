#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "optpipe/io/json.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// Eight layers; the last one takes as long as three others.
std::string layers(const std::string& more = "") {
    return R"({ "format": "optpipe.layers/1", "name": "eight", "ranks": 2, "microbatches": 6, )" + more + R"(
  "layers": [
    { "count": 7, "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1, "static_memory": 2 },
    { "forward": 3, "backward_input": 3, "backward_weight": 3, "activation": 1, "static_memory": 4 } ] })";
}

} // namespace

TEST_CASE("partition writes the pipeline and its plan, and says which layers are where") {
    const workplace place;
    place.write("m.json", layers(R"("memory_limit": 40,)"));
    const auto result = run({"partition", place / "m.json", "--threads", "1", "--out", place / "p.json", "--plan",
                             place / "s.json", "--svg", place / "s.svg"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "rank 0: layers 0"), result);
    CHECK_MESSAGE(contains(result.out, "no schedule of any partition is shorter than 91 "), result);
    CHECK(contains(place.read("s.svg"), "<svg"));
    CHECK(run({"check", place / "p.json", place / "s.json"}).status == 0);
    const auto p = optpipe::read_problem(place / "p.json");
    CHECK(p.name == "eight");
    // The weights of all layers take 18 of twice 40.
    CHECK(p.memory_limit[optpipe::rank{0}] + p.memory_limit[optpipe::rank{1}] == optpipe::memory_size{80 - 18});
}

TEST_CASE("as JSON") {
    const workplace place;
    place.write("m.json", layers(R"("placements": ["linear"],)"));
    const auto result = run({"partition", place / "m.json", "--threads", "1", "--json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    const auto document = json::parse(result.out);
    CHECK(document["layers"] == json{5, 3});
    CHECK(document["ranks"] == json{0, 1});
    CHECK(document["stage_of"] == json{0, 0, 0, 0, 0, 1, 1, 1});
    CHECK(document["bound_of_partitions"] == 95);
    CHECK(document["partitions"].get<int>() > 1);
    CHECK(document["objective"].get<double>() >= document["bound"].get<double>());
    CHECK(document["problem"] == "eight");
}

TEST_CASE("layers of a graph: what each rank holds, and the stage of each layer") {
    const workplace place;
    // Layers 0 and 2 form one branch, layer 1 the other one.
    place.write("g.json", R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": 2, "placements": ["linear"],
  "edges": [ { "from": 0, "to": 2 } ], "pins": [ { "layer": 0, "rank": 1 } ], "rank_speed": [2, 1],
  "layers": [
    { "forward": 1, "backward_input": 1, "activation": 1, "backward": "input" },
    { "count": 2, "forward": 4, "backward_input": 4, "backward_weight": 4, "activation": 1 } ] })");
    const auto result = run({"partition", place / "g.json", "--threads", "1", "--out", place / "p.json"});
    REQUIRE_MESSAGE(result.status == 0, result);
    CHECK_MESSAGE(contains(result.out, "rank 0: layers 1\nrank 1: layers 0, 2\n"), result);
    CHECK(optpipe::read_problem(place / "p.json").costs[optpipe::stage{0}].forward == optpipe::duration{2});
    const auto printed = run({"partition", place / "g.json", "--threads", "1", "--json"});
    const auto document = json::parse(printed.out);
    CHECK(document["stage_of"] == json{1, 0, 1});
    CHECK(document["layers"] == json{1, 2});
}

TEST_CASE("partition as a table: the uniform layout, one's own, and the plan, which is no worse than either") {
    const workplace place;
    place.write("m.json", layers(R"("memory_limit": 40,)"));
    for (const std::string own : {"5,3", "Et*4|t*4L", "2,2,2,2"}) {
        const auto result = run({"partition", place / "m.json", "--threads", "1", "--time-limit", "1", "--table",
                                 "--layout", own, "--out", place / "p.json", "--plan", place / "s.json"});
        CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
        for (const auto* part : {"**eight** (8 layers on 2 ranks, 6 microbatches): no schedule of any partition is",
                                 "| mean bubble ", "| uniform ", "| yours ", "| plan ",
                                 "Time of a microbatch on each stage [ms]", "Peak of the stashes of each rank [GB]"})
            CHECK_MESSAGE(contains(result.out, part), part << '\n' << result);
        CHECK(run({"check", place / "p.json", place / "s.json"}).status == 0);
    }
    const auto tight = run({"partition", place.write("tight.json", layers(R"("memory_limit": 20,)")), "--threads", "1",
                            "--time-limit", "1", "--table", "--layout", "1,7"});
    CHECK_MESSAGE((tight.status == 0 && contains(tight.out, "\n- yours: rank 1 needs ")), tight);
}

TEST_CASE("partition: a layout that doesn't fit is one message") {
    const workplace place;
    place.write("m.json", layers());
    const auto refused = [&](const std::string& own, const std::string& why) {
        const auto result = run({"partition", place / "m.json", "--table", "--layout", own});
        CHECK_MESSAGE((result.status == 2 && result.says({why})), result);
    };
    refused("3,4", "--layout: has 7 layers, there are 8");
    refused("4,x", "--layout: character 1: must be E");
    refused("3,3,2", "--layout: has 3 stages, which must be a multiple of the 2 ranks");
    CHECK(run({"partition", place / "m.json", "--layout", "4,4"}).status == 2);
    CHECK(run({"partition", place / "m.json", "--table", "--json"}).status == 2);
}

TEST_CASE("partition: what doesn't fit, and bad input") {
    const workplace place;
    place.write("m.json", layers(R"("memory_limit": 9.5,)"));
    const auto none = run({"partition", place / "m.json", "--out", place / "p.json"});
    CHECK_MESSAGE((none.status == 3 && contains(none.err, "m.json: no partition that was tried fits: rank ")), none);
    CHECK_FALSE(place.has("p.json"));
    place.write("bad.json", layers(R"("placements": ["w"],)"));
    const auto bad = run({"partition", place / "bad.json"});
    CHECK_MESSAGE((bad.status == 2 && contains(bad.err, "placements[0]: must be")), bad);
    const auto problem = run({"partition", data("two-ranks.json")});
    CHECK_MESSAGE((problem.status == 2 && contains(problem.err, "must be \"optpipe.layers/1\"")), problem);
    const auto same = run({"partition", place / "m.json", "--out", place / "m.json"});
    CHECK_MESSAGE((same.status == 2 && contains(same.err, "would replace the input")), same);
}

#endif
