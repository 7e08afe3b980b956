#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/io/json.hpp"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

/// All that `optpipe.problem/3` adds, but pairs.
const char* const example = R"({ "format": "optpipe.problem/3", "name": "example", "ranks": 2, "p2p": 1,
  "microbatches": [ {"sequence": 4, "scale": 0.5},
                    {"sequence": 4, "scale": 0.5, "forward": 0.75, "memory": [1, 2, 3, 4], "message": 3},
                    {"backward_input": 1.25, "backward_weight": 1.5} ],
  "stages": [ { "rank": 0, "forward": 9, "activation": 2, "backward": "none" },
              { "rank": 1, "forward": 10, "backward_input": 11, "activation": 1, "backward": "input", "kv": 0.125 },
              { "rank": 0, "forward": 4, "backward_input": 5, "backward_weight": 6, "activation": 0.5 },
              { "rank": 1, "forward": 4, "backward_input": 5, "backward_weight": 6, "activation": 0.5,
                "backward": "full" } ],
  "edges": [ {"from": 0, "to": 1}, {"from": 1, "to": 2, "size": 0.5}, {"from": 1, "to": 3, "held": 0.25} ],
  "groups": [ {"stages": [2, 3], "delay": 0.375} ] })";

std::vector<std::string> refusal_of(const std::string& text) {
    std::vector<std::string> all;
    try {
        (void)parse_problem(text, "file.json");
    } catch (const input_error& refused) {
        for (const auto& v : refused.violations())
            all.push_back(v.text());
    }
    return all;
}

/// Checks that the example with one change is refused with exactly this.
void refuses(const char* pointer, const json& value, const std::string& text) {
    auto changed = json::parse(example);
    changed[json::json_pointer{pointer}] = value;
    INFO(pointer << " = " << value.dump());
    CHECK(refusal_of(changed.dump()) == std::vector{text});
}
void accepts(const char* pointer, const json& value) {
    auto changed = json::parse(example);
    changed[json::json_pointer{pointer}] = value;
    INFO(pointer << " = " << value.dump());
    CHECK(refusal_of(changed.dump()).empty());
}

/// A chain of two stages in an earlier format, with one field more.
std::vector<std::string> earlier(const char* format, const char* pointer, const json& value) {
    const json each{{"rank", 0}, {"forward", 1}, {"backward_input", 1}, {"backward_weight", 1}, {"activation", 1}};
    json p{{"format", format}, {"ranks", 1}, {"microbatches", 2}, {"stages", {each, each}}};
    p[json::json_pointer{pointer}] = value;
    return refusal_of(p.dump());
}

void check_round_trip(const problem& p) {
    const auto text = problem_to_json(p);
    const auto again = parse_problem(text, "again.json");
    CHECK(again.graph == p.graph);
    CHECK(again.costs == p.costs);
    CHECK(again.storage == p.storage);
    CHECK(again.microbatches == p.microbatches);
    CHECK(again.groups == p.groups);
    CHECK(again.overlaps == p.overlaps);
    CHECK(again.memory_limit == p.memory_limit);
    CHECK(again.split_backward == p.split_backward);
    CHECK(problem_to_json(again) == text);
}

} // namespace

TEST_CASE("graphs, frozen stages, groups and microbatches are read") {
    const auto p = parse_problem(example, "file.json");
    CHECK_FALSE(p.graph.is_chain());
    std::vector<edge> all;
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) { all.push_back(e); });
    CHECK(all == std::vector{edge{stage{0}, stage{1}, 1.0, {}}, edge{stage{1}, stage{2}, 0.5, {}},
                             edge{stage{1}, stage{3}, 1.0, memory_size{0.25}}});
    CHECK(p.costs[stage{0}].gradients == gradient_kind::none);
    CHECK(p.costs[stage{0}].work() == duration{9});
    CHECK(p.costs[stage{0}].weight_stash == memory_size{});
    CHECK(p.costs[stage{1}].gradients == gradient_kind::input);
    CHECK(p.costs[stage{1}].weight_stash == memory_size{});
    CHECK(p.costs[stage{1}].kv == memory_size{0.125});
    CHECK(p.costs[stage{2}].weight_stash == memory_size{0.25});
    CHECK(p.costs[stage{3}].gradients == gradient_kind::full);
    CHECK(p.groups.together(stage{2}, stage{3}));
    CHECK_FALSE(p.groups.has(stage{1}));
    p.groups.for_each_member(stage{2}, [](stage, duration delay) { CHECK(delay == duration{0.375}); });
    CHECK(p.graph.microbatches() == 3);
    CHECK(p.microbatches.slice_after(microbatch{0}) == microbatch{1});
    CHECK_FALSE(p.microbatches.is_slice(microbatch{2}));
    CHECK(p.microbatches.factors(stage{3}, microbatch{0}) == cost_factors{0.5, 0.5, 0.5, 0.5, 0.5});
    CHECK(p.microbatches.factors(stage{3}, microbatch{1}) == cost_factors{0.75, 0.5, 0.5, 4, 3});
    CHECK(p.microbatches.factors(stage{0}, microbatch{1}).memory == 1.0);
    CHECK(p.microbatches.factors(stage{2}, microbatch{2}) == cost_factors{1, 1.25, 1.5, 1, 1});
    check_round_trip(p);
}

TEST_CASE("what is not said is the chain of equal microbatches") {
    const json each{{"rank", 0}, {"forward", 1}, {"backward_input", 1}, {"backward_weight", 1}, {"activation", 1}};
    json given{
        {"format", "optpipe.problem/3"}, {"name", "x"}, {"ranks", 1}, {"microbatches", 2}, {"stages", {each, each}}};
    const auto plain = parse_problem(given.dump(), "file.json");
    CHECK(is_plain(plain));
    CHECK(problem_to_json(plain).find("optpipe.problem/1") != std::string::npos);
    given["edges"] = json::parse(R"([{"from": 0, "to": 1}])");
    given["groups"] = json::array();
    given["microbatches"] = json::parse(R"([{}, {"sequence": 3, "scale": 1}])");
    given["stages"][0]["kv"] = 0;
    const auto said = parse_problem(given.dump(), "file.json");
    CHECK(is_plain(said));
    CHECK(said.microbatches == plain.microbatches);
    CHECK(problem_to_json(said) == problem_to_json(plain));
    given["edges"] = json::array();
    const auto apart = parse_problem(given.dump(), "file.json");
    CHECK_FALSE(is_plain(apart));
    check_round_trip(apart);
    given["edges"] = nullptr;
    CHECK(is_plain(parse_problem(given.dump(), "file.json")));
}

TEST_CASE("files of format 3 are what they were after writing and reading") {
    std::size_t files = 0, plain = 0;
    for (const auto& entry : std::filesystem::directory_iterator{OPTPIPE_SOURCE_DIR "/tests/data/format3"}) {
        CAPTURE(entry.path().string());
        const auto p = read_problem(entry.path().string());
        check_round_trip(p);
        ++files;
        plain += is_plain(p) ? 1U : 0U;
    }
    CHECK(files > 20);
    CHECK(plain == 1); // with the vocabulary on the last rank, beside one that splits it
}

TEST_CASE("keys and values alone don't make a problem another format") {
    auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/format3/slice-linear-p4-m8-k2.json");
    p.microbatches = {};
    p.costs[stage{0}].kv = memory_size{0.5};
    check_round_trip(p);
}

TEST_CASE("bad edges") {
    refuses("/edges", 3, "edges: must be a list, is 3");
    refuses("/edges/1", 3, "edges[1]: must be an object, is 3");
    refuses("/edges/1", json{{"from", 1}}, "edges[1].to: is missing");
    refuses("/edges/1", json{{"to", 1}}, "edges[1].from: is missing");
    refuses("/edges/1/from", "x", "edges[1].from: must be a whole number, is \"x\"");
    refuses("/edges/1/from", -1, "edges[1].from: must not be negative, is -1");
    refuses("/edges/1/to", 4, "edges[1].to: is 4, there are 4 stages");
    refuses("/edges/1/to", 1.5, "edges[1].to: must be a whole number, is 1.5");
    refuses("/edges/1/to", 1, "edges[1].to: is 1, must be after from, 1");
    refuses("/edges/1/to", 0, "edges[1].to: is 0, must be after from, 1");
    refuses("/edges/1/to", 3, "edges[2]: is the second edge from stage 1 to stage 3");
    refuses("/edges/1/size", "x", "edges[1].size: must be a number, is \"x\"");
    refuses("/edges/1/size", -1, "edge from stage 1 to 2.size: must not be negative, is -1");
    refuses("/edges/1/held", nullptr, "edges[1].held: must be a number, is null");
    refuses("/edges/1/held", true, "edges[1].held: must be a number, is true");
    refuses("/edges/1/held", -1, "edge from stage 1 to 2.held: must not be negative, is -1");
    refuses("/edges/1/weight", 1, "edges[1].weight: is no field of this format");
    accepts("/edges/1/x-mine", 1);
    accepts("/edges/1/size", 0);
}

TEST_CASE("bad groups") {
    refuses("/groups", 3, "groups: must be a list, is 3");
    refuses("/groups/0", 3, "groups[0]: must be an object, is 3");
    refuses("/groups/0", json::object(), "groups[0].stages: is missing");
    refuses("/groups/0/stages", 3, "groups[0].stages: must be a list, is 3");
    refuses("/groups/0/stages", json::array(), "groups[0].stages: must hold at least one stage");
    refuses("/groups/0/stages/1", "x", "groups[0].stages[1]: must be a whole number, is \"x\"");
    refuses("/groups/0/stages/1", 9, "groups[0].stages[1]: is 9, there are 4 stages");
    refuses("/groups/0/stages/1", 2, "groups[0].stages[1]: stage 2 is in a group already");
    refuses("/groups/1", json{{"stages", {1, 3}}}, "groups[1].stages[1]: stage 3 is in a group already");
    refuses("/groups/0/delay", nullptr, "groups[0].delay: must be a number, is null");
    refuses("/groups/0/delay", "x", "groups[0].delay: must be a number, is \"x\"");
    refuses("/groups/0/delay", -1, "groups: delay of stage 2: must not be negative, is -1");
    refuses("/groups/0/size", 1, "groups[0].size: is no field of this format");
    accepts("/groups/1", json{{"stages", {1}}});
}

TEST_CASE("bad microbatches") {
    refuses("/microbatches", "x", "microbatches: must be a whole number, is \"x\"");
    refuses("/microbatches", json::array(), "microbatches: must hold at least one microbatch");
    refuses("/microbatches/1", 3, "microbatches[1]: must be an object, is 3");
    refuses("/microbatches/1/weight", 1, "microbatches[1].weight: is no field of this format");
    for (const std::string name : {"forward", "backward_input", "backward_weight", "memory", "message"}) {
        const auto pointer = "/microbatches/2/" + name;
        const auto place = "microbatches[2]." + name;
        refuses(pointer.c_str(), "x", place + ": must be a number, is \"x\"");
        refuses(pointer.c_str(), {1, 1, 1}, place + ": has 3 entries, there are 4 stages");
        refuses(pointer.c_str(), {1, 1, "x", 1}, place + "[2]: must be a number, is \"x\"");
        refuses(pointer.c_str(), {1, 1, 0, 1}, place + "[2]: must be above 0, is 0");
        accepts(pointer.c_str(), 2);
        accepts(pointer.c_str(), nullptr);
    }
    refuses("/microbatches/2/scale", "x", "microbatches[2].scale: must be a number, is \"x\"");
    refuses("/microbatches/2/scale", {1, 1}, "microbatches[2].scale: has 2 entries, there are 4 stages");
    refuses("/microbatches/2/scale", 0, "microbatches[2].scale: must be above 0, is 0");
    refuses("/microbatches/2/scale", {1, -2, 1, 1}, "microbatches[2].scale[1]: must be above 0, is -2");
    refuses("/microbatches/2/sequence", "x", "microbatches[2].sequence: must be a whole number, is \"x\"");
    refuses("/microbatches/2/sequence", 1.5, "microbatches[2].sequence: must be a whole number, is 1.5");
    refuses("/microbatches/3", json{{"sequence", 4}},
            "microbatches[3].sequence: the slices of sequence 4 don't follow one another");
    accepts("/microbatches/2/sequence", -7);
}

TEST_CASE("factors are above 0 where all stages have the same") {
    auto changed = json::parse(example);
    changed["microbatches"] = json::parse(R"([{}, {"forward": 0}])");
    CHECK(refusal_of(changed.dump()) == std::vector<std::string>{"microbatches[1].forward: must be above 0, is 0"});
}

TEST_CASE("bad backwards, keys and values") {
    refuses("/stages/3/backward", "half", "stages[3].backward: must be \"full\", \"input\" or \"none\", is \"half\"");
    refuses("/stages/3/backward", 3, "stages[3].backward: must be \"full\", \"input\" or \"none\", is 3");
    refuses("/stages/1/backward", "full", "stages[1].backward_weight: is missing");
    refuses("/stages/1/backward_weight", 2, "stages[1].backward_weight: must be 0 with this backward, is 2");
    refuses("/stages/1/weight_stash", 2, "stages[1].weight_stash: must be 0 with this backward, is 2");
    refuses("/stages/0/backward_input", 2, "stages[0].backward_input: must be 0 with this backward, is 2");
    auto with_transfers = json::parse(example);
    with_transfers["stages"][0]["offload"] = with_transfers["stages"][0]["reload"] = 2;
    CHECK(refusal_of(with_transfers.dump()) ==
          std::vector<std::string>{"stages[0].offload: is not for a stage with backward \"none\"",
                                   "stages[0].reload: is not for a stage with backward \"none\""});
    refuses("/stages/0/storage", json::parse(R"([{"name": "keep"}])"),
            "stages[0].storage: is not for a stage with backward \"none\"");
    refuses("/stages/3", json::parse(R"({"rank": 1, "forward": 4, "activation": 1, "backward": "none"})"),
            "stages[3].backward: is \"none\", but stage 1, which feeds it, computes gradients");
    refuses("/stages/1/kv", nullptr, "stages[1].kv: must be a number, is null");
    refuses("/stages/1/kv", "x", "stages[1].kv: must be a number, is \"x\"");
    refuses("/stages/1/kv", -1, "stages[1].kv: must not be negative, is -1");
    accepts("/stages/1/backward_weight", 0);
    accepts("/stages/1/weight_stash", 0);
}

TEST_CASE("what a pair lacks, or has too much, is refused with its place") {
    const auto pairs = [](const char* text) { return json::parse(text); };
    accepts("/overlaps", json::array());
    accepts("/overlaps", nullptr);
    accepts("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "I", "duration": 99, "memory": 0.5}])"));
    refuses("/overlaps", 1, "overlaps: must be a list, is 1");
    refuses("/overlaps", pairs("[1]"), "overlaps[0]: must be an object, is 1");
    refuses("/overlaps", pairs(R"([{"backward": 1, "kind": "I", "duration": 99}])"), "overlaps[0].forward: is missing");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 9, "kind": "I", "duration": 99}])"),
            "overlaps[0].backward: is 9, there are 4 stages");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "W", "duration": 99}])"),
            "overlaps[0].kind: must be \"B\" or \"I\", is \"W\"");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "I"}])"), "overlaps[0].duration: is missing");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "I", "duration": 99, "lag": 1}])"),
            "overlaps[0].lag: is no field of this format");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "I", "duration": 0.1}])"),
            "overlaps[0].duration: 0.1 is shorter than a part, which takes 11");
    refuses("/overlaps", pairs(R"([{"forward": 1, "backward": 1, "kind": "I", "duration": 9},
                                   {"forward": 1, "backward": 1, "kind": "I", "duration": 9}])"),
            "overlaps[1]: is the second pair of these stages and kind");
}

TEST_CASE("what an earlier format doesn't have is refused") {
    for (const auto* format : {"optpipe.problem/1", "optpipe.problem/2"}) {
        CAPTURE(format);
        for (const std::string name : {"edges", "groups", "overlaps"})
            CHECK(earlier(format, ("/" + name).c_str(), json::array()) ==
                  std::vector{name + ": belongs to optpipe.problem/3"});
        for (const std::string name : {"backward", "kv"})
            CHECK(earlier(format, ("/stages/1/" + name).c_str(), name == "kv" ? json(0) : json("full")) ==
                  std::vector{"stages[1]." + name + ": belongs to optpipe.problem/3"});
        CHECK(earlier(format, "/microbatches", json::parse("[{}, {}]")) ==
              std::vector<std::string>{"microbatches: a list belongs to optpipe.problem/3"});
    }
}

#endif
