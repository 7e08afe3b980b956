#include "optpipe/io/layout.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/partition_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

using counts = std::vector<std::size_t>;

/// The message for a layout that is refused.
std::string refusal_of(const std::string& text, std::size_t layers) {
    try {
        static_cast<void>(parse_layout(text, "mine", layers));
    } catch (const input_error& e) {
        return e.what();
    }
    return "";
}

partition_problem layers_on(std::size_t ranks, std::size_t layers) {
    const problem p{to_any_graph(graph<dynamic, dynamic>{ranks, 4}), per_stage<stage_costs>(ranks)};
    return {std::vector<layer_costs>(layers), usual_placements(p, layers)};
}

} // namespace

TEST_CASE("a layout is the number of layers of each stage") {
    CHECK(parse_layout("3,8,8,9", "", 28) == stage_layout{{3, 8, 8, 9}, false});
    CHECK(parse_layout("5", "", 5).layers == counts{5});
}

TEST_CASE("a layout of Megatron: repetitions, groups, and E and L as layers or not") {
    CHECK(parse_layout("Ett|tt|ttL", "", 6) == stage_layout{{2, 2, 2}, true});
    CHECK(parse_layout("Ett|tt|ttL", "", 8).layers == counts{3, 2, 3});
    CHECK(parse_layout("E,t*3|(tt|)*3,m|L", "", 12).layers == counts{4, 2, 2, 2, 1, 1});
    CHECK(parse_layout("Et|(t*2|t|)*2tL", "", 8).layers == counts{1, 2, 1, 2, 1, 1});
    CHECK(parse_layout("(Et|)*1t|*1t*0tL", "", 3).layers == counts{1, 1, 1});
}

TEST_CASE("a layout that doesn't parse or doesn't fit is refused with its place") {
    CHECK(refusal_of("", 4) == "mine: character 1: must be a number of layers, is the end");
    CHECK(refusal_of("3,,1", 4) == "mine: character 3: must be a number of layers, is \",\"");
    CHECK(refusal_of("3, 1", 4) == "mine: character 3: must be a number of layers, is \" \"");
    CHECK(refusal_of("3,2", 4) == "mine: has 5 layers, there are 4");
    CHECK(refusal_of("4,0", 4) == "mine: stage 1: must hold at least one layer");
    CHECK(refusal_of("99999999999999999999", 4) == "mine: character 1: is more than 8192");
    CHECK(refusal_of("Ettx|L", 3) ==
          "mine: character 4: must be E, t, m, L, |, a comma or a group in parentheses, is \"x\"");
    CHECK(refusal_of("Et*|L", 3) == "mine: character 4: must be a number after *, is \"|\"");
    CHECK(refusal_of("E(tt|L", 3) == "mine: character 7: must be ), is the end");
    CHECK(refusal_of("E(tt)L", 3) == "mine: character 6: must be * and how often the group repeats, is \"L\"");
    CHECK(refusal_of("E((t)*2)*2L", 4) == "mine: character 3: is a group in a group, which Megatron doesn't read");
    CHECK(refusal_of("E(t*4000)*4L", 4) == "mine: character 12: the layout has more than 8192 layers and stages");
    CHECK(refusal_of("tt|L", 3) == "mine: E: must be there once, as the first layer");
    CHECK(refusal_of("Ett|tE", 3) == "mine: E: must be there once, as the first layer");
    CHECK(refusal_of("Ett|t", 3) == "mine: L: must be there once, as the last layer");
    CHECK(refusal_of("Em|tL", 2) == "mine: m: must come after every t");
    CHECK(refusal_of("Ett|ttL", 7) ==
          "mine: has 4 layers between E and L; there are 7, so it must have as many, or two "
          "less with E and L as layers of their own");
    CHECK(refusal_of("Ettt|L", 3) == "mine: stage 1: must hold at least one layer");
    CHECK(refusal_of("Et\xC3\xA4L", 3) ==
          "mine: character 3: must be E, t, m, L, |, a comma or a group in parentheses, is \"\xC3\xA4\"");
}

TEST_CASE("a layout belongs to a pipeline with as many stages") {
    const auto p = layers_on(2, 8);
    CHECK(pipeline_for(p, {{4, 4}, false}, "mine").graph == p.pipelines.front().graph);
    const auto two_each = pipeline_for(p, {{2, 2, 2, 2}, true}, "mine");
    CHECK(two_each.rank_of(stage{2}) == rank{0});
    const auto three_each = pipeline_for(p, {{1, 1, 1, 1, 2, 2}, false}, "mine");
    CHECK(three_each.graph.stages() == 6);
    CHECK(three_each.rank_of(stage{5}) == rank{1});
    CHECK_THROWS_WITH_AS(static_cast<void>(pipeline_for(p, {{4, 2, 2}, false}, "mine")),
                         "mine: has 3 stages, which must be a multiple of the 2 ranks", input_error);
}
