#include "optpipe/planner/partition.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/io/json_layers.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stop_token>
#include <string>
#include <utility>
#include <variant>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;
using counts = std::vector<std::size_t>;

namespace {

problem pipeline(std::size_t ranks, std::size_t microbatches, memory_size device, bool v = false) {
    const auto g = v ? to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches})
                     : to_any_graph(graph<dynamic, dynamic>{ranks, microbatches});
    problem p{g, per_stage<stage_costs>(g.stages())};
    for (auto& l : p.memory_limit)
        l = device;
    return p;
}
layer_costs layer(double work, double stash = 1.0, double weights = 0.0) {
    layer_costs one;
    one.costs = {duration{work}, duration{work}, duration{work}, memory_size{stash}, memory_size{stash / 2}, {}};
    one.static_memory = memory_size{weights};
    return one;
}
/// Calls `look` for every partition.
template <class Look> void for_each_partition(std::size_t layers, std::size_t stages, counts begin, const Look& look) {
    if (stages == 1) {
        begin.push_back(layers);
        return look(begin);
    }
    begin.push_back(0);
    for (std::size_t here = 1; here + stages <= layers + 1; ++here) {
        begin.back() = here;
        for_each_partition(layers - here, stages - 1, begin, look);
    }
}
void check(const partition_plan& found, const problem& p, const std::vector<layer_costs>& layers) {
    CHECK(std::accumulate(found.layers.begin(), found.layers.end(), std::size_t{0}) == layers.size());
    const auto same = with_layers(p, layers, found.layers);
    CHECK(same.costs[stage{0}] == found.pipeline.costs[stage{0}]);
    CHECK(validate(same, found.planned.schedule).empty());
    CHECK(found.bound <= found.planned.bound);
    CHECK(found.planned.bound <= found.planned.objective);
}

} // namespace

TEST_CASE("of all partitions the best, or one that no single layer makes better, and never one worse than even") {
    random_numbers random{20261127};
    std::size_t best_found = 0;
    std::size_t cases = 0;
    for (int i = 0; i < 6; ++i) {
        const bool v = i % 3 == 2;
        const auto p = pipeline(v ? 2 : 3, 4, memory_size{i % 2 == 0 ? 1000.0 : 14.0}, v);
        std::vector<layer_costs> layers;
        for (int l = 0; l < 7; ++l)
            layers.push_back(layer(1.0 + static_cast<double>(random.below(3)), 1.0));
        layers.back() = layer(5.0);
        const auto found = plan_partition(p, layers);
        REQUIRE(found);
        check(*found, p, layers);
        auto least = duration::unlimited();
        for_each_partition(layers.size(), p.graph.stages(), {}, [&](const counts& each) {
            plan_options quick;
            quick.without = {"milp"};
            const auto planned = plan(with_layers(p, layers, each), quick);
            if (!planned) return;
            CHECK(found->bound <= planned->objective);
            least = std::min(least, planned->objective);
        });
        const counts even = v ? counts{2, 2, 2, 1} : counts{3, 2, 2};
        const auto evenly = plan(with_layers(p, layers, even));
        REQUIRE(evenly);
        CHECK(found->planned.objective <= evenly->objective);
        ++cases;
        if (found->planned.objective.value() <= least.value() * (1.0 + 1e-9)) ++best_found;
    }
    CHECK(best_found + 1 >= cases);
}

TEST_CASE("where partitions are few, none is better: neither near what was tried first nor far from it") {
    // Three of six partitions fit. The two uneven ones aren't neighbours of the even one.
    const auto p = parse_layers(R"({ "format": "optpipe.layers/1", "ranks": 3, "microbatches": 1,
        "memory_limit": 16, "p2p": 2, "placements": ["linear"], "transfer": { "engines": 2, "links": [[0, 1, 2]] },
        "layers": [
            { "forward": 4, "backward_input": 4, "backward_weight": 1, "activation": 4, "weight_stash": 2,
              "static_memory": 2, "storage": [ { "name": "ahead", "held": 2, "recompute": 0.125 } ] },
            { "count": 2, "forward": 1, "backward_input": 2, "backward_weight": 14, "activation": 0,
              "storage": [ { "name": "ahead", "held": 0 } ] },
            { "count": 2, "forward": 19, "backward_input": 2, "backward_weight": 2, "activation": 6,
              "weight_stash": 8, "storage": [ { "name": "ahead", "held": 3, "recompute": 0.125 } ] } ] })",
                                "layers");
    for (const bool has_limit : {false, true}) {
        plan_options options;
        if (has_limit) options.time_limit = 60s;
        const auto found = plan_partition(p, options);
        REQUIRE(found);
        CHECK(found->layers == counts{1, 1, 3});
        CHECK(found->planned.objective.value() == doctest::Approx(72.25));
        CHECK(found->planned.why == plan_end::optimal);
        CHECK(found->bound.value() == doctest::Approx(72.25));
    }
}

TEST_CASE("a partition that one microbatch at a time doesn't fit isn't taken for impossible if the host's memory is "
          "the limit") {
    // With the first placement, a stash returns from the host before another leaves, and the step takes 267.
    const auto p = parse_layers(R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": 1,
        "memory_limit": [11, 100], "host_memory_limit": [6, 100], "rank_speed": [1, 0.1],
        "placements": [[0, 0, 0, 1], [0, 1, 1, 1]], "layers": [
            { "forward": 10, "backward_input": 10, "backward_weight": 1, "activation": 5, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "off", "transfer_size": 5, "offload": 1, "reload": 1 } ] },
            { "forward": 10, "backward_input": 10, "backward_weight": 1, "activation": 8, "weight_stash": 0, "storage": [
                { "name": "keep" },
                { "name": "off", "held": 6, "recompute": 2, "transfer_size": 6, "offload": 1, "reload": 1 } ] },
            { "forward": 10, "backward_input": 10, "backward_weight": 1, "activation": 6, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "off" } ] },
            { "forward": 10, "backward_input": 10, "backward_weight": 1, "activation": 1, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "off" } ] } ] })",
                                "layers");
    const auto found = plan_partition(p, {});
    REQUIRE(found);
    CHECK(found->bound <= duration{267});
}

TEST_CASE("random layers: of all partitions the best, proven") {
    constexpr std::uint64_t seed = 5;
    std::size_t compared = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(40); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto number = [&](std::size_t least, std::size_t most) {
            return static_cast<double>(random.between(least, most));
        };
        const auto ranks = random.between(2, 3);
        auto p = pipeline(ranks, random.between(1, 3), memory_size{number(8, 40)});
        p.p2p = hop_times<>{duration{number(0, 3)}};
        std::vector<layer_costs> layers;
        for (std::size_t l = random.between(ranks, 6); l > 0; --l) {
            auto& one = layers.emplace_back();
            one.costs = {duration{number(1, 20)}, duration{number(1, 20)}, duration{number(1, 20)},
                         memory_size{number(0, 6)}};
            one.static_memory = memory_size{number(0, 4)};
            if (i % 2 != 0) continue;
            one.storage.push_back(keep_stash(one.costs));
            one.storage.push_back({"ahead", 0.5 * one.costs.activation, duration{number(1, 5)}, {}, {}, {}});
        }
        const auto found = plan_partition(p, layers, {.time_limit = 60s});
        auto least = duration::unlimited();
        for_each_partition(layers.size(), ranks, {}, [&](const counts& each) {
            const auto one = with_layers(p, layers, each);
            if (!validate(one).empty()) return; // it doesn't fit
            const auto planned = plan(one, {.time_limit = 60s});
            if (planned) least = std::min(least, planned->objective);
        });
        REQUIRE(found.has_value() == !least.is_unlimited());
        if (!found) continue;
        ++compared;
        CHECK(found->planned.objective.value() == doctest::Approx(least.value()));
        CHECK(found->planned.why == plan_end::optimal);
        CHECK(found->bound.value() == doctest::Approx(least.value()));
    }
    CHECK(compared >= oracle::random_cases(20));
}

namespace {

/// A layer of random costs; without a backward, or frozen, if `kind` says so.
layer_costs random_layer(random_numbers& random, gradient_kind kind) {
    const auto number = [&](std::size_t least, std::size_t most) {
        return static_cast<double>(random.between(least, most));
    };
    layer_costs one;
    one.costs = {duration{number(1, 20)}, duration{number(1, 20)}, duration{number(1, 20)}, memory_size{number(0, 6)}};
    one.costs.gradients = kind;
    if (kind == gradient_kind::none) one.costs.backward_input = {};
    if (kind != gradient_kind::full) one.costs.backward_weight = {};
    if (kind != gradient_kind::full) one.costs.weight_stash = {};
    one.static_memory = memory_size{number(0, 3)};
    return one;
}
/// Layers that form a graph, on ranks of different speed; perhaps with a pin and with two layers in one stage.
partition_problem random_graph(random_numbers& random) {
    const auto ranks = random.between(2, 3);
    auto base = pipeline(ranks, random.between(1, 3), memory_size{static_cast<double>(random.between(12, 40))});
    base.p2p = hop_times<>{duration{static_cast<double>(random.below(4))}};
    std::vector<cost_factors> factors(base.graph.microbatches());
    for (auto& each : factors)
        each.forward = each.memory = 0.25 * static_cast<double>(random.between(2, 8));
    if (random.chance(30)) base.microbatches.set_factors(factors);
    partition_problem p;
    const auto count = random.between(ranks, 5);
    const auto without_backward = random.below(3);
    for (std::size_t l = 0; l < count; ++l)
        p.layers.push_back(random_layer(random, l + 1 < count && l < without_backward ? gradient_kind::none
                                                : random.chance(20)                   ? gradient_kind::input
                                                                                      : gradient_kind::full));
    p.edges.emplace();
    for (std::size_t from = 0; from < count; ++from)
        for (auto to = from + 1; to < count; ++to)
            if (random.chance(45))
                p.edges->push_back({from, to, 1.0, memory_size{0.5 * static_cast<double>(random.below(3))}});
    if (random.chance(40)) p.pins.push_back({random.below(count), rank{random.below(ranks)}});
    if (random.chance(30)) p.together.push_back({0, random.between(1, count - 1)});
    for (std::size_t r = 0; r < ranks; ++r)
        p.rank_speed.push_back(0.5 * static_cast<double>(random.between(1, 4)));
    p.pipelines = usual_placements(base, count);
    return p;
}
/// Whether the problem allows to give layers these stages.
bool allows(const partition_problem& p, const any_graph& g, const std::vector<stage>& stage_of) {
    const auto is_back = [&](const layer_edge& e) { return stage_of[e.to] < stage_of[e.from]; };
    const auto is_unmet = [&](const layer_pin& pin) {
        return g.rank_of(stage_of[pin.layer]) != std::get<rank>(pin.where);
    };
    const auto is_divided = [&](const auto& list) { return stage_of[list.front()] != stage_of[list.back()]; };
    for (const stage s : g.all_stages())
        if (std::find(stage_of.begin(), stage_of.end(), s) == stage_of.end()) return false;
    for (std::size_t from = 0; from < stage_of.size(); ++from)
        for (std::size_t to = 0; to < stage_of.size(); ++to)
            if (p.layers[from].costs.gradients == gradient_kind::none &&
                p.layers[to].costs.gradients != gradient_kind::none && stage_of[to] < stage_of[from])
                return false;
    return std::none_of(p.edges->begin(), p.edges->end(), is_back) &&
           std::none_of(p.pins.begin(), p.pins.end(), is_unmet) &&
           std::none_of(p.together.begin(), p.together.end(), is_divided);
}
/// The least objective of all partitions on one pipeline, planned each on its own; unlimited if none fits.
duration least_objective(const partition_problem& p, std::size_t at, std::vector<stage> begin) {
    const auto& g = p.pipelines[at].graph;
    auto least = duration::unlimited();
    if (begin.size() < p.layers.size()) {
        begin.emplace_back(std::size_t{0});
        for (const stage s : g.all_stages()) {
            begin.back() = s;
            least = std::min(least, least_objective(p, at, begin));
        }
        return least;
    }
    if (!allows(p, g, begin)) return least;
    const auto one = with_layers(p, at, begin);
    if (!validate(one).empty()) return least; // it doesn't fit
    const auto planned = plan(one, {.time_limit = 60s});
    return planned ? planned->objective : least;
}

} // namespace

TEST_CASE("random graphs of layers on ranks of different speed: of all partitions the best, proven") {
    constexpr std::uint64_t seed = 7;
    std::size_t compared = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(16); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = random_graph(random);
        if (!validate(p).empty()) continue; // pins leave no way
        const auto found = plan_partition(p, {.time_limit = 60s});
        auto least = duration::unlimited();
        for (std::size_t at = 0; at < p.pipelines.size(); ++at)
            least = std::min(least, least_objective(p, at, {}));
        REQUIRE(found.has_value() == !least.is_unlimited());
        if (!found) continue;
        ++compared;
        CHECK(allows(p, found->pipeline.graph, found->stage_of));
        const auto same = with_layers(p, found->chosen, found->stage_of);
        CHECK(validate(same, found->planned.schedule).empty());
        CHECK(found->planned.objective.value() == doctest::Approx(least.value()));
        CHECK(found->bound.value() == doctest::Approx(least.value()));
    }
    CHECK(compared >= oracle::random_cases(5));
}

TEST_CASE("layers of a graph may share a stage though they aren't neighbours in the list") {
    // Layers 0 and 2 form a branch, layer 1 the other one; neither order of the list divides the work equally.
    partition_problem p;
    for (const double work : {1.0, 3.0, 2.0})
        p.layers.push_back(layer(work));
    p.edges = {{{0, 2}}};
    p.pipelines = {pipeline(2, 4, memory_size{100.0})};
    p.pins = {{0, stage{1}}};
    const auto found = plan_partition(p);
    REQUIRE(found);
    CHECK(found->stage_of == std::vector<stage>{stage{1}, stage{0}, stage{1}});
    CHECK(found->layers == counts{1, 2});
    CHECK(found->planned.objective.value() == doctest::Approx(36.0)); // no stage waits for the other
    CHECK(found->planned.why == plan_end::optimal);
}

TEST_CASE("a slower rank gets fewer layers, and the bound for all partitions knows its speed") {
    partition_problem p;
    p.layers.assign(9, layer(1.0));
    p.pipelines = {pipeline(2, 8, memory_size{100.0})};
    p.rank_speed = {1.0, 0.5};
    const auto found = plan_partition(p, {.time_limit = 5s});
    REQUIRE(found);
    CHECK(found->layers == counts{6, 3});
    CHECK(found->bound >= duration{8 * 9 * 3.0 / 1.5});
    p.pins = {{8, rank{1}}, {3, rank{1}}};
    const auto pinned = plan_partition(p, {.time_limit = 5s});
    REQUIRE(pinned);
    CHECK(pinned->layers == counts{3, 6}); // layer 3 takes along those behind it
    CHECK(pinned->bound >= duration{8 * 6 * 3.0 / 0.5});
}

TEST_CASE("an output layer that takes as long as three layers gets fewer beside it") {
    std::vector<layer_costs> layers(12, layer(1.0));
    layers.back() = layer(4.0);
    const auto p = pipeline(3, 16, memory_size{1000.0});
    const auto found = plan_partition(p, layers, {.time_limit = 2s});
    REQUIRE(found);
    check(*found, p, layers);
    CHECK(found->layers == counts{5, 5, 2});
    CHECK(found->bound >= duration{16 * 3 * 5.0}); // by work alone; higher, as all partitions are looked at
    CHECK(found->tried > 1);
    // Planned again without a limit, it is the same each time.
    const auto one = plan_partition(p, layers);
    const auto other = plan_partition(p, layers);
    REQUIRE((one && other));
    CHECK(one->layers == other->layers);
    CHECK(one->planned.objective == other->planned.objective);
}

TEST_CASE("layers go where there is memory for their weights") {
    std::vector<layer_costs> layers(8, layer(1.0, 1.0, 10.0));
    auto p = pipeline(2, 4, memory_size{60.0});
    p.memory_limit[rank{0}] = memory_size{25.0};
    const auto found = plan_partition(p, layers);
    REQUIRE_FALSE(found); // 2 on the first, 6 on the second: no room for a stash
    CHECK(found.why().reason == refusal_reason::over_memory);
    p.memory_limit[rank{1}] = memory_size{90.0};
    const auto more = plan_partition(p, layers);
    REQUIRE(more);
    check(*more, p, layers);
    CHECK(more->layers == counts{2, 6});
    for (auto& l : p.memory_limit)
        l = memory_size{35.0};
    const auto none = plan_partition(p, layers);
    REQUIRE_FALSE(none);
    CHECK(describe(none.why()).starts_with("no partition that was tried fits: rank "));
}

TEST_CASE("of several placements the one with the shortest step, and none that doesn't fit") {
    // A rank that has the first and the last stage holds one stash; in a line of stages it holds three.
    std::vector<layer_costs> layers(6, layer(1.0));
    partition_problem p{layers, usual_placements(pipeline(3, 3, memory_size{8.0}), layers.size())};
    REQUIRE(p.pipelines.size() == 3);
    const auto all = plan_partition(p);
    REQUIRE(all);
    check(*all, p.pipelines[all->chosen], layers);
    for (std::size_t i = 0; i < p.pipelines.size(); ++i) {
        const auto one = plan_partition(p.pipelines[i], layers);
        if (one) CHECK(all->planned.objective <= one->planned.objective);
        if (i == all->chosen) CHECK(all->planned.objective == one->planned.objective);
    }
    CHECK(all->chosen > 0);
    // If the second placement lacks memory, the first is chosen. If both do, the refusal is that of the one with the
    // smaller shortage.
    partition_problem tight{std::vector<layer_costs>(4, layer(1.0, 1.0, 10.0)), {}};
    tight.pipelines = {with_placement(pipeline(2, 2, memory_size{21.5}), placement::loop<>{2}),
                       pipeline(2, 2, memory_size{23.0})};
    const auto fits = plan_partition(tight);
    REQUIRE(fits);
    CHECK(fits->chosen == 1);
    tight.pipelines[0].memory_limit[rank{0}] = memory_size{20.0};
    tight.pipelines[1].memory_limit[rank{1}] = memory_size{21.5};
    const auto none = plan_partition(tight);
    REQUIRE_FALSE(none);
    CHECK(none.why().rank == rank{1});
    CHECK(none.why().limit == memory_size{21.5});
}

TEST_CASE("where few partitions fit, one of them is found") {
    const auto one = [](double stash, double weights) { return layer(1.0, stash, weights); };
    const std::vector<layer_costs> layers{one(0, 1), one(1, 8), one(2, 3), one(1, 3), one(1, 0), one(1, 5), one(1, 1)};
    const auto p = pipeline(2, 2, memory_size{14.0}, true);
    const auto found = plan_partition(p, layers);
    REQUIRE(found);
    CHECK(found->layers == counts{1, 1, 1, 4});
    // Weights that fill a device, and exceed it slightly by rounding.
    const std::vector<layer_costs> full(3, layer(1.0, 0.0, 0.1));
    CHECK(plan_partition(pipeline(1, 2, memory_size{0.3}), full));
}

TEST_CASE("the search ends with the gap that is asked for, and says when it was stopped") {
    std::vector<layer_costs> layers(12, layer(1.0));
    layers.front() = layer(1.7);
    layers.back() = layer(3.3);
    const auto p = pipeline(4, 12, memory_size{1000.0});
    const auto near = plan_partition(p, layers, {.gap = 0.9});
    REQUIRE(near);
    CHECK(near->tried <= 3); // the initial ones
    CHECK(near->planned.bound >= near->bound);
    // The same if other partitions may have shorter steps: with little memory, the first ones are above the bound on
    // all.
    const auto tight = pipeline(4, 12, memory_size{8.0});
    const auto within = plan_partition(tight, layers, {.gap = 0.4});
    REQUIRE(within);
    CHECK(within->tried <= 3);
    const auto reached = relative_gap(within->planned.objective, within->bound);
    REQUIRE(reached > 0.01);
    const auto beyond = plan_partition(tight, layers, {.gap = 0.5 * reached});
    REQUIRE(beyond);
    CHECK(beyond->tried > 3);
    std::stop_source source;
    source.request_stop();
    plan_options stopped{.time_limit = 10s};
    stopped.stop = source.get_token();
    const auto early = plan_partition(p, layers, stopped);
    REQUIRE(early);
    CHECK(early->planned.why == plan_end::stop_request);
}

TEST_CASE("the bound on all partitions beside a given one keeps to the time limit") {
    // All eight layers divided by four ranks take 6 for each of 8 microbatches. With time, the bound knows that the
    // first microbatch reaches the last rank after 6.
    const std::vector<layer_costs> layers(8, layer(1.0));
    const partition_problem p{layers, {pipeline(4, 8, memory_size::unlimited())}};
    const counts uneven{5, 1, 1, 1};
    const auto in_time = plan_layout(p, 0, uneven);
    const auto late = plan_layout(p, 0, uneven, {.time_limit = 0s});
    REQUIRE(in_time);
    REQUIRE(late);
    CHECK(in_time->bound.value() == doctest::Approx(6 * 8 + 6).epsilon(2e-4));
    CHECK(late->bound.value() == doctest::Approx(6 * 8));
}

TEST_CASE("pipelines that can't be compared are refused") {
    const std::vector<layer_costs> layers(4, layer(1.0));
    const auto refusal_of = [&](std::vector<problem> pipelines) -> std::string {
        try {
            static_cast<void>(plan_partition(partition_problem{layers, std::move(pipelines)}));
        } catch (const input_error& e) {
            return e.what();
        }
        return "";
    };
    const auto one = pipeline(2, 4, memory_size{10.0});
    CHECK(refusal_of({}).find("pipelines: must hold at least one") != std::string::npos);
    CHECK(refusal_of({one, pipeline(2, 5, memory_size{10.0})}).find("pipelines[1]") != std::string::npos);
    CHECK(refusal_of({one, pipeline(3, 4, memory_size{10.0})}).find("pipelines[1]") != std::string::npos);
    CHECK(refusal_of({one, pipeline(5, 4, memory_size{10.0})}).find("5 stages") != std::string::npos);
}

TEST_CASE("bad input has one message") {
    const std::vector<layer_costs> layers(2, layer(1.0));
    CHECK_THROWS_WITH_AS(
        static_cast<void>(plan_partition(pipeline(3, 4, memory_size{10.0}), layers)),
        doctest::Contains("pipelines[0]: has 3 stages, which take one layer each at least; there are 2"), input_error);
    std::vector<layer_costs> bad(3, layer(1.0));
    bad[1].costs.forward = duration{-1.0};
    const auto p = pipeline(3, 4, memory_size{10.0});
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_partition(p, bad)), doctest::Contains("layers[1].forward"),
                         input_error);
    auto few = p;
    few.memory_limit = per_rank<memory_size>(2, memory_size{10.0});
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_partition(few, std::vector<layer_costs>(3, layer(1.0)))),
                         doctest::Contains("pipelines[0].memory_limit: has 2 entries, there are 3 ranks"), input_error);
    std::vector<layer_costs> apart(3, layer(1.0));
    apart[0].storage.push_back({.name = "keep", .held = memory_size{1.0}});
    apart[1].storage.push_back({.name = "full", .held = memory_size{0.0}, .recompute = duration{1.0}});
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_partition(p, apart)),
                         doctest::Contains("layers: have no storage option in common"), input_error);
}
