#include "optpipe/pipeline/partition_problem.hpp"

#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;
using counts = std::vector<std::size_t>;

namespace {

layer_costs trained(double time, double stash = 1.0) {
    layer_costs one;
    one.costs = {duration{time}, duration{2.0 * time}, duration{time}, memory_size{stash}, memory_size{stash / 2}, {}};
    return one;
}
layer_costs frozen(double time, double stash, gradient_kind kind) {
    layer_costs one;
    one.costs.forward = duration{time};
    if (kind == gradient_kind::input) one.costs.backward_input = duration{time};
    one.costs.activation = memory_size{stash};
    one.costs.weight_stash = {};
    one.costs.gradients = kind;
    return one;
}
/// These layers on two ranks, with two microbatches, and a delay of 1 between the ranks.
partition_problem on_two_ranks(std::vector<layer_costs> layers) {
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 2}), per_stage<stage_costs>(2)};
    p.p2p = hop_times<>{duration{1.0}};
    partition_problem result{std::move(layers), {}};
    result.pipelines = usual_placements(p, result.layers.size());
    return result;
}
/// The stage of each layer if the stages hold so many consecutive layers.
std::vector<stage> in_order(const counts& each) {
    std::vector<stage> stage_of;
    for (std::size_t s = 0; s < each.size(); ++s)
        stage_of.insert(stage_of.end(), each[s], stage{s});
    return stage_of;
}
std::vector<edge> edges_of(const problem& p) {
    std::vector<edge> all;
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) { all.push_back(e); });
    return all;
}
std::string complaints(const partition_problem& p) {
    std::string text;
    for (const auto& v : validate(p))
        text += v.text() + "\n";
    return text;
}

} // namespace

TEST_CASE("edges between layers become edges between their stages") {
    auto p = on_two_ranks({6, trained(1.0)});
    REQUIRE(p.pipelines.size() == 3);
    // Layers 0 and 1 feed layer 4 far away; layer 0 sends its result to each stage once.
    p.edges = {{{0, 1},
                {1, 2},
                {2, 3},
                {3, 4},
                {4, 5},
                {0, 4, 0.5, memory_size{2}},
                {0, 5, 0.25, memory_size{3}},
                {1, 4, 2.0, memory_size{4}}}};
    REQUIRE(complaints(p) == "");
    const auto linear = with_layers(p, 0, in_order({2, 4}));
    // Layers 0 and 1 send what they computed once, though each has two edges there.
    CHECK(edges_of(linear) == std::vector<edge>{{stage{0}, stage{1}, 0.5 + 2.0, memory_size{3.0 + 4.0}}});
    const auto loop = with_layers(p, 1, in_order({2, 1, 1, 2}));
    CHECK(edges_of(loop) == std::vector<edge>{{stage{0}, stage{1}, 1.0, {}},
                                              {stage{0}, stage{3}, 2.5, memory_size{7}},
                                              {stage{1}, stage{2}, 1.0, {}},
                                              {stage{2}, stage{3}, 1.0, {}}});
    CHECK(validate(loop).empty());
    // Layers 2 and 3 have nothing to do with each other then, and may change places.
    p.edges = {{{0, 1}, {1, 2}, {1, 3}, {2, 4}, {3, 4}, {4, 5}}};
    const auto apart =
        with_layers(p, 0, std::vector<stage>{stage{0}, stage{0}, stage{1}, stage{0}, stage{1}, stage{1}});
    CHECK(edges_of(apart) == std::vector<edge>{{stage{0}, stage{1}, 2.0, {}}});
    CHECK(apart.costs[stage{0}].forward == duration{3.0});
    // With all of their ends in one stage, nothing remains but the chain.
    p.edges = {{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {3, 5, 1.0, memory_size{2}}}};
    CHECK(with_layers(p, 0, in_order({3, 3})).graph.is_chain());
    // Without a list, layers are a chain; with an empty one, no layer feeds another.
    p.edges.reset();
    CHECK(with_layers(p, 0, in_order({3, 3})).graph.is_chain());
    p.edges.emplace();
    CHECK(edges_of(with_layers(p, 0, in_order({3, 3}))).empty());
}

TEST_CASE("a slower rank takes longer for what it computes, and not for what it moves") {
    auto p = on_two_ranks({4, trained(1.0)});
    for (auto& layer : p.layers) {
        layer.storage.push_back(keep_stash(layer.costs));
        layer.storage.push_back({"ahead", memory_size{0.5}, duration{1.0}, {}, {}, {}});
        layer.storage.push_back({"inside", memory_size{0.5}, {}, duration{1.0}, {}, {}});
        layer.storage.push_back(
            {"away", memory_size{1.0}, {}, {}, memory_size{1.0}, transfer_times{duration{3.0}, duration{4.0}}});
    }
    p.rank_speed = {1.0, 0.5};
    REQUIRE(complaints(p) == "");
    const auto v = with_layers(p, 2, in_order({1, 1, 1, 1}));
    for (const stage s : v.graph.all_stages()) {
        const double factor = v.rank_of(s) == rank{1} ? 2.0 : 1.0;
        CHECK(v.costs[s].forward == duration{factor});
        CHECK(v.costs[s].backward_input == duration{2.0 * factor});
        CHECK(v.costs[s].backward_weight == duration{factor});
        CHECK(v.costs[s].activation == memory_size{1.0});
        CHECK(v.storage[s][1].recompute == duration{factor});
        CHECK(v.storage[s][2].backward_extra == duration{factor});
        CHECK(v.storage[s][3].transfer == transfer_times{duration{3.0}, duration{4.0}});
    }
}

TEST_CASE("a stage computes the gradients that one of its layers computes") {
    auto p = on_two_ranks({frozen(1.0, 4.0, gradient_kind::none), frozen(1.0, 3.0, gradient_kind::none),
                           frozen(2.0, 1.0, gradient_kind::input), trained(1.0, 2.0), trained(1.0, 2.0)});
    p.layers[3].costs.kv = memory_size{0.25};
    p.layers[4].costs.kv = memory_size{0.5};
    for (std::size_t i = 2; i < 5; ++i) {
        p.layers[i].storage.push_back(keep_stash(p.layers[i].costs));
        p.layers[i].storage.push_back({"ahead", memory_size{0.5}, duration{1.0}, {}, {}, {}});
    }
    REQUIRE(complaints(p) == "");
    const auto apart = with_layers(p, 0, in_order({2, 3}));
    CHECK(apart.costs[stage{0}].gradients == gradient_kind::none);
    CHECK(apart.costs[stage{0}].activation == memory_size{7.0});
    CHECK(apart.costs[stage{0}].forward == duration{2.0});
    CHECK(apart.costs[stage{1}].gradients == gradient_kind::full);
    CHECK(apart.costs[stage{1}].activation == memory_size{5.0});
    CHECK(apart.costs[stage{1}].weight_stash == memory_size{2.0});
    CHECK(apart.costs[stage{1}].backward_input == duration{2.0 + 2.0 + 2.0});
    CHECK(apart.costs[stage{1}].kv == memory_size{0.75});
    CHECK(validate(apart).empty());
    CHECK(with_layers(p, 1, in_order({1, 1, 1, 2})).costs[stage{2}].gradients == gradient_kind::input);
    // Layers without a backward run first: their 7 are needed then, and the 1 of the frozen one behind them later.
    const auto mixed = with_layers(p, 0, in_order({3, 2}));
    CHECK(mixed.costs[stage{0}].gradients == gradient_kind::input);
    CHECK(mixed.costs[stage{0}].activation == memory_size{7.0});
    REQUIRE(mixed.storage_options(stage{0}) == 2);
    CHECK(mixed.storage_of(stage{0}, 0).held == memory_size{7.0});
    CHECK(mixed.storage_of(stage{0}, 1).held == memory_size{7.0});
    CHECK(mixed.storage_of(stage{0}, 1).recompute == duration{1.0});
    CHECK(validate(mixed).empty());
}

TEST_CASE("bad input of layers has one message with place and reason") {
    const auto refusal_of = [](auto change) {
        auto p = on_two_ranks({4, trained(1.0)});
        change(p);
        return complaints(p);
    };
    constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(refusal_of([](auto& p) { p.layers.clear(); }) == "layers: must hold at least one\n");
    const auto with_edges = [&](std::vector<layer_edge> edges) {
        return refusal_of([&](auto& p) { p.edges = edges; });
    };
    CHECK(with_edges({{0, 4}}) == "edges[0].to: is 4, there are 4 layers\n");
    CHECK(with_edges({{0, 1}, {2, 1}}) == "edges[1].to: is 1, must be after from, 2\n");
    CHECK(with_edges({{0, 1}, {0, 1}}) == "edges[1]: is the second edge from layer 0 to layer 1\n");
    CHECK(with_edges({{0, 1, -1.0}}) == "edges[0].size: must not be negative, is -1\n");
    CHECK(with_edges({{0, 1, nan}}) == "edges[0].size: is not a finite number\n");
    CHECK(with_edges({{0, 1, 1.0, memory_size{-2.0}}}) == "edges[0].held: must not be negative, is -2\n");
    CHECK(with_edges({{0, 1, 9e59}, {0, 2, 9e59}}) == "edges: the sum of size: must be at most 1e+60, is 1.8e+60\n");
    const auto with_pin = [&](layer_pin pin) { return refusal_of([&](auto& p) { p.pins = {pin}; }); };
    CHECK(with_pin({4, stage{0}}) == "pins[0].layer: is 4, there are 4 layers\n");
    CHECK(with_pin({0, stage{2}}) == "pins[0].stage: is 2, there are 2 stages in one of the placements\n");
    CHECK(with_pin({0, rank{2}}) == "pins[0].rank: is 2, there are 2 ranks\n");
    CHECK(with_pin({0, stage{1}}) == "pins: leave no way to divide the layers among the stages\n");
    CHECK(with_pin({3, rank{0}}) == ""); // in the v
    CHECK(refusal_of([](auto& p) { p.together = {{0}}; }) == "together[0]: must name at least two layers\n");
    CHECK(refusal_of([](auto& p) { p.together = {{0, 9}}; }) == "together[0][1]: is 9, there are 4 layers\n");
    CHECK(refusal_of([](auto& p) {
              p.together = {{0, 3}};
          }) == "together: leaves no way to divide the layers among the stages\n");
    CHECK(refusal_of([](auto& p) {
              p.together = {{0, 2}};
              p.pins = {{1, stage{1}}};
          }) == "pins: and together leave no way to divide the layers among the stages\n");
    CHECK(refusal_of([](auto& p) { p.rank_speed = {1.0}; }) == "rank_speed: has 1 entries, there are 2 ranks\n");
    CHECK(refusal_of([](auto& p) { p.rank_speed = {1.0, 0.0}; }) == "rank_speed[1]: must be above 0, is 0\n");
    CHECK(refusal_of([](auto& p) {
              p.rank_speed = {1.0, 1e-60};
          }) == "rank_speed[1]: the time of all layers: must be at most 1e+60, is 1.6e+61\n");
    CHECK(refusal_of([](auto& p) { p.layers.push_back(frozen(1.0, 1.0, gradient_kind::none)); }) ==
          "layers: layer 4, which has no backward, must come before layer 0, which has one\n");
    CHECK(refusal_of([](auto& p) { p.pipelines[1].groups.add(std::vector<stage>{stage{0}}, duration{}, 4); }) ==
          "pipelines[1]: has edges, groups, pairs or factors of its stages, which aren't known before layers are "
          "divided\n");
}
