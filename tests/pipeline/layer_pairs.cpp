#include "optpipe/pipeline/layer_pairs.hpp"

#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
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

namespace {

/// A layer with these times of computation and communication.
layer_costs layer(work_parts forward, work_parts input, double weight, std::string kind = "") {
    layer_costs one;
    one.costs = {forward.all(), input.all(), duration{weight}, memory_size{1.0}, memory_size{0.5}, {}};
    one.forward_comm = forward.communication;
    one.backward_comm = input.communication;
    one.kind = std::move(kind);
    return one;
}
constexpr work_parts parts(double computation, double communication) {
    return {duration{computation}, duration{communication}};
}
/// These layers on one rank with one stage for each.
partition_problem on_one_rank(std::vector<layer_costs> layers, std::size_t stages = 1) {
    partition_problem p{std::move(layers), {}};
    problem one{any_graph{1, 2, placement::map<>{per_stage<rank>(stages)}}, per_stage<stage_costs>(stages)};
    p.pipelines = {one};
    return p;
}
problem divided(const partition_problem& p, const std::vector<std::size_t>& stages) {
    REQUIRE(validate(p).empty());
    std::vector<stage> stage_of;
    for (const auto s : stages)
        stage_of.emplace_back(s);
    auto made = with_layers(p, 0, stage_of);
    CHECK(validate(made).empty());
    return made;
}
std::string complaints(const partition_problem& p) {
    std::string text;
    for (const auto& v : validate(p))
        text += v.text() + "\n";
    return text;
}

} // namespace

TEST_CASE("a pair lasts as long as the longer of computation and communication, and at least as each part") {
    CHECK(overlap_duration(parts(3, 1), parts(4, 2), 0.0) == duration{7});
    CHECK(overlap_duration(parts(3, 1), parts(4, 2), 0.5) == duration{10.5});
    CHECK(overlap_duration(parts(1, 6), parts(2, 4), 0.0) == duration{10});
    CHECK(overlap_duration(parts(0, 6), parts(2, 0), 0.0) == duration{6});
    CHECK(overlap_duration(parts(5, 5), parts(0.5, 0.5), 0.0) == duration{10});
}

TEST_CASE("DeepSeek-V3's measured pair: its computations hide its all-to-alls") {
    // Milliseconds, as published by its authors: computations of F, I and W, and the two all-to-alls of F and of I.
    const auto one = layer(parts(35.866, 17.383 + 23.975), parts(58.587, 13.621 + 25.473), 35.067);
    const auto both = forward_parts(one) + backward_parts(one, overlap_kind::backward);
    CHECK(std::max(both.computation, both.communication).value() == doctest::Approx(129.012).epsilon(0.01));
    // A pair of a problem is no shorter than B, all of whose communication is exposed if it runs alone.
    const auto made = divided(on_one_rank({one}), {0});
    const auto* pair = made.overlaps.find(stage{0}, stage{0}, overlap_kind::backward);
    REQUIRE(pair);
    CHECK(pair->duration == one.costs.backward());
}

TEST_CASE("the pairs of stages follow from the sums over their layers") {
    auto p = on_one_rank(
        {layer(parts(2, 3), parts(4, 3), 2), layer(parts(3, 1), parts(6, 1), 3), layer(parts(1, 0), parts(2, 0), 1)},
        2);
    p.contention = 0.125;
    const auto made = divided(p, {0, 0, 1});
    const auto length = [&](std::size_t f, std::size_t b, overlap_kind kind) {
        const auto* pair = made.overlaps.find(stage{f}, stage{b}, kind);
        return pair ? pair->duration : duration{};
    };
    CHECK(length(0, 0, overlap_kind::backward) == 1.125 * duration{5 + 10 + 5});
    CHECK(length(0, 0, overlap_kind::backward_input) == 1.125 * duration{5 + 10});
    CHECK(length(0, 1, overlap_kind::backward) == 1.125 * duration{5 + 3});
    CHECK(length(1, 0, overlap_kind::backward) == duration{15 + 4}); // at least as long as B
    CHECK(length(1, 1, overlap_kind::backward) == duration{});       // nothing to hide
    CHECK(made.overlaps.size() == 6);
    p.pipelines.front().split_backward = false;
    CHECK(divided(p, {0, 0, 1}).overlaps.size() == 3);
    p.pipelines.front().split_backward = true;
    p.pipelines.front().full_backward = false;
    CHECK(divided(p, {0, 0, 1}).overlaps.size() == 3);
    p.rank_speed = {2.0};
    p.pipelines.front().full_backward = true;
    const auto fast = divided(p, {0, 0, 1});
    CHECK(fast.overlaps.find(stage{0}, stage{0}, overlap_kind::backward)->duration == 0.5 * 1.125 * duration{20});
    p.contention = 1.0; // a pair would last longer than its parts in succession
    CHECK(divided(p, {0, 0, 1}).overlaps.empty());
}

TEST_CASE("with measured pairs, layers of two stages run in pairs, the first forward with the last backward") {
    auto p = on_one_rank({layer(parts(2, 0), parts(2, 0), 2, "dense"), layer(parts(2, 3), parts(2, 3), 2, "experts"),
                          layer(parts(2, 3), parts(2, 3), 2, "experts"), layer(parts(1, 0), parts(1, 0), 1)},
                         2);
    p.layer_pairs = {{"dense", "experts", overlap_kind::backward, duration{7.5}},
                     {"experts", "experts", overlap_kind::backward, duration{9}},
                     {"experts", "experts", overlap_kind::backward_input, duration{8}}};
    const auto made = divided(p, {0, 0, 1, 1});
    const auto length = [&](std::size_t f, std::size_t b, overlap_kind kind) {
        const auto* pair = made.overlaps.find(stage{f}, stage{b}, kind);
        REQUIRE(pair);
        return pair->duration;
    };
    using enum overlap_kind;
    // Stage 0 is dense, experts; stage 1 is experts, other. Pairs: (dense, experts), (experts, dense).
    CHECK(length(0, 0, backward) == duration{7.5} + duration{2 + 2 + 2}); // the second isn't measured: computations
    CHECK(length(0, 1, backward) == duration{2 + 2} + duration{9});       // (dense, other), (experts, experts)
    CHECK(length(1, 0, backward) == duration{9} + duration{1 + 4});       // (experts, experts), (other, dense)
    CHECK(length(1, 1, backward) == duration{5} + duration{7});           // each as long as its longer part
    CHECK(length(0, 1, backward_input) == duration{2 + 1} + duration{8});
    // The longer of two stages ends alone.
    const auto uneven = divided(p, {0, 1, 1, 1});
    const auto* pair = uneven.overlaps.find(stage{1}, stage{0}, backward);
    REQUIRE(pair);
    CHECK(pair->duration == duration{2 + 4} + duration{5} + duration{1});
}

TEST_CASE("frozen layers have pairs with I, and layers without a backward none") {
    auto frozen = layer(parts(2, 2), parts(3, 2), 0, "frozen");
    frozen.costs.gradients = gradient_kind::input;
    frozen.costs.weight_stash = {};
    auto first = layer(parts(3, 1), {}, 0);
    first.costs.gradients = gradient_kind::none;
    first.costs.weight_stash = {};
    auto p = on_one_rank({first, frozen, layer(parts(2, 2), parts(2, 2), 2, "trained")}, 3);
    auto made = divided(p, {0, 1, 2});
    for (const auto& each : made.overlaps) {
        CHECK(each.backward > stage{0});
        CHECK((each.kind == overlap_kind::backward_input || each.backward == stage{2}));
    }
    CHECK(made.overlaps.find(stage{0}, stage{1}, overlap_kind::backward_input)->duration == duration{6});
    // In one stage with trained layers, its I belongs to their B.
    p.layer_pairs = {{"trained", "frozen", overlap_kind::backward_input, duration{5.5}}};
    p.pipelines = on_one_rank(p.layers, 2).pipelines;
    made = divided(p, {0, 1, 1});
    // (frozen, trained), (trained, frozen)
    CHECK(made.overlaps.find(stage{1}, stage{1}, overlap_kind::backward)->duration == duration{6 + 5.5});
}

TEST_CASE("bad parts and pairs of layers have one message with place and reason") {
    const auto refusal_of = [](auto change) {
        auto p = on_one_rank({layer(parts(2, 3), parts(4, 3), 2, "a"), layer(parts(2, 3), parts(4, 3), 2, "b")});
        change(p);
        return complaints(p);
    };
    const auto with_pair = [&](layer_pair each) { return refusal_of([&](auto& p) { p.layer_pairs = {each}; }); };
    using enum overlap_kind;
    CHECK(refusal_of([](auto& p) { p.layers[1].forward_comm = duration{6}; }) ==
          "layers[1].forward_comm: is 6, must be at most forward, 5\n");
    CHECK(refusal_of([](auto& p) { p.layers[1].backward_comm = duration{8}; }) ==
          "layers[1].backward_comm: is 8, must be at most backward_input, 7\n");
    CHECK(refusal_of([](auto& p) { p.layers[0].forward_comm = duration{-1}; }) ==
          "layers[0].forward_comm: must not be negative, is -1\n");
    CHECK(refusal_of([](auto& p) { p.contention = -0.5; }) == "contention: must not be negative, is -0.5\n");
    CHECK(refusal_of([](auto& p) { p.contention = std::numeric_limits<double>::infinity(); }) ==
          "contention: is not a finite number\n");
    CHECK(with_pair({"c", "a", backward, duration{20}}) == "layer_pairs[0].forward: is the kind of no layer\n");
    CHECK(with_pair({"a", "c", backward, duration{20}}) == "layer_pairs[0].backward: is the kind of no layer\n");
    CHECK(with_pair({"a", "b", backward, duration{8}}) ==
          "layer_pairs[0].duration: 8 is shorter than a part, which takes 9\n");
    CHECK(with_pair({"a", "b", backward_input, duration{8}}) == "");
    CHECK(with_pair({"a", "b", backward, duration{-1}}) == "layer_pairs[0].duration: must be above 0, is -1\n");
    CHECK(refusal_of([](auto& p) {
              p.layer_pairs = {{"a", "b", backward, duration{9}}, {"a", "b", backward, duration{10}}};
          }) == "layer_pairs[1]: is the second pair of these kinds\n");
    CHECK(refusal_of([](auto& p) {
              p.layers[0].costs.gradients = p.layers[1].costs.gradients = gradient_kind::input;
              for (auto& each : p.layers) {
                  each.costs.backward_weight = {};
                  each.costs.weight_stash = {};
              }
              p.layer_pairs = {{"a", "b", backward, duration{9}}};
          }) == "layer_pairs[0].kind: no layer of the backward's kind has B\n");
    auto many = on_one_rank(std::vector<layer_costs>(200, layer(parts(1, 1), parts(1, 1), 1)), 200);
    CHECK(complaints(many) == "pipelines[0]: has 80000 pairs of stages, at most 65536 are possible\n");
    for (auto& each : many.layers)
        each.forward_comm = each.backward_comm = duration{};
    CHECK(complaints(many) == "");
}
