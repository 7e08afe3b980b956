#include "optpipe/planner/partition/division_bound.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/io/json_layers.hpp"
#include "optpipe/planner/partition.hpp"
#include "optpipe/planner/partition/partition_space.hpp"
#include "optpipe/planner/plan.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

using namespace optpipe;

namespace {

enum class stages_of_rank : std::uint8_t { one, loop, v };

problem pipeline(stages_of_rank which, std::size_t ranks, std::size_t microbatches, memory_size limit) {
    const auto g = to_any_graph(graph<dynamic, dynamic>{ranks, microbatches});
    problem p{g, per_stage<stage_costs>(ranks)};
    for (auto& each : p.memory_limit)
        each = limit;
    if (which == stages_of_rank::loop) return with_placement(p, placement::loop<>{2});
    return which == stages_of_rank::v ? with_placement(p, placement::v{}) : p;
}
layer_costs layer(double forward, double input, double weight, double stash) {
    layer_costs one;
    one.costs = {duration{forward}, duration{input}, duration{weight}, memory_size{stash}, memory_size{stash / 2}, {}};
    return one;
}
/// `layers` equal layers with passes of one unit.
partition_problem equal_layers(std::size_t layers, problem on) {
    partition_problem p;
    p.layers.assign(layers, layer(1, 1, 1, 1));
    p.pipelines = {std::move(on)};
    return p;
}
detail::bound_of_divisions bound_of(const detail::partition_space& space) {
    detail::partition_bound bound{space};
    while (!bound.is_done())
        bound.raise_once({});
    return bound.found();
}
duration bound_of(const partition_problem& p) {
    const auto cuts = detail::cuts_of(p);
    return bound_of(detail::partition_space{p, cuts, 0}).bound;
}
constexpr double precision = 2e-4;

storage_option option(const char* name, double held, double recompute, double inside) {
    return {name, memory_size{held}, duration{recompute}, duration{inside}, {}, {}};
}
/// Options to keep or to recompute the stash, and sometimes to offload it.
storage_list<false> drawn_storage(random_numbers& random, double stash) {
    const auto time = static_cast<double>(random.between(1, 8));
    storage_list<false> options;
    options.push_back(option("keep", stash, 0, 0));
    const double less = 0.1 * static_cast<double>(random.below(6)) * stash;
    options.push_back(random.chance(50) ? option("less", less, time, 0) : option("less", less, 0, time));
    if (random.chance(50)) options.push_back(option("least", 0, 0, 12));
    if (!random.chance(20)) return options;
    options.push_back(option("offload", stash, 0, 0));
    options.back().transfer_size = memory_size{stash};
    options.back().transfer = transfer_times{duration{time}, duration{time}};
    return options;
}

/// Random layers on a random pipeline: full or split backwards, tight memory, frozen layers, ranks of different speed.
/// Amounts of memory are tenths, so that their sums are rounded.
partition_problem drawn(random_numbers& random) {
    const auto number = [&](std::size_t least, std::size_t most) {
        return static_cast<double>(random.between(least, most));
    };
    const auto which = static_cast<stages_of_rank>(random.below(3));
    const auto ranks = random.between(2, 3);
    auto on = pipeline(which, ranks, random.between(1, 5), memory_size{0.1 * number(50, 250)});
    on.p2p = hop_times<>{duration{number(0, 3)}};
    on.split_backward = random.chance(70);
    if (random.chance(10)) on.objective = objective_kind::span;
    partition_problem p;
    const auto layers = on.graph.stages() + random.between(0, 2);
    const std::size_t frozen = random.chance(20) ? 1 : 0;
    const bool has_options = random.chance(40);
    for (std::size_t i = 0; i < layers; ++i) {
        p.layers.push_back(layer(number(1, 12), number(1, 12), number(1, 12), 0.1 * number(0, 30)));
        p.layers.back().static_memory = memory_size{0.1 * number(0, 20)};
        if (i >= frozen && has_options)
            p.layers.back().storage = drawn_storage(random, p.layers.back().costs.activation.value());
        if (i >= frozen) continue;
        auto& c = p.layers.back().costs;
        c.gradients = gradient_kind::none;
        c.backward_input = c.backward_weight = duration{};
        c.weight_stash = memory_size{};
    }
    if (random.chance(30)) {
        p.rank_speed.assign(ranks, 1.0);
        p.rank_speed.front() = 2.0;
    }
    p.pipelines = {std::move(on)};
    return p;
}

/// Random layers for two ranks with at most eight cells, in little memory; mostly loops and v.
partition_problem tiny(random_numbers& random) {
    const auto number = [&](std::size_t least, std::size_t most) {
        return static_cast<double>(random.between(least, most));
    };
    const auto which = random.chance(20)   ? stages_of_rank::one
                       : random.chance(50) ? stages_of_rank::loop
                                           : stages_of_rank::v;
    auto on = pipeline(which, 2, which == stages_of_rank::one ? 4 : 2, memory_size{0.1 * number(12, 45)});
    on.p2p = hop_times<>{duration{number(0, 3)}};
    on.split_backward = random.chance(70);
    if (random.chance(10)) on.objective = objective_kind::span;
    partition_problem p;
    const auto layers = on.graph.stages() + random.between(0, 1);
    const bool has_options = random.chance(40);
    for (std::size_t i = 0; i < layers; ++i) {
        p.layers.push_back(layer(number(1, 12), number(1, 12), number(1, 3), 1.0 + 0.1 * number(0, 5)));
        if (has_options) p.layers.back().storage = drawn_storage(random, p.layers.back().costs.activation.value());
    }
    if (random.chance(30)) p.rank_speed = {2.0, 1.0};
    p.pipelines = {std::move(on)};
    return p;
}

} // namespace

TEST_CASE("the last rank begins when a microbatch has passed all others") {
    const auto p = equal_layers(4, pipeline(stages_of_rank::one, 4, 8, memory_size::unlimited()));
    CHECK(bound_of(p).value() == doctest::Approx(3 * 8 + 3).epsilon(precision));
}

TEST_CASE("layers are indivisible: of five layers, one of two ranks has three") {
    const auto p = equal_layers(5, pipeline(stages_of_rank::one, 2, 8, memory_size::unlimited()));
    CHECK(bound_of(p).value() == doctest::Approx(3 * 3 * 8).epsilon(precision));
}

TEST_CASE("a rank whose memory is full of stashes waits for gradients") {
    // Rank 0 has at most 3 of 8 layers, as its load would be too large otherwise. 4 stashes of a layer fit.
    const auto free = equal_layers(8, pipeline(stages_of_rank::one, 4, 8, memory_size::unlimited()));
    const auto tight = equal_layers(8, pipeline(stages_of_rank::one, 4, 8, memory_size{4}));
    CHECK(bound_of(free).value() == doctest::Approx(6 * 8 + 6).epsilon(precision));
    // Rank 0 with 2 layers: microbatches pass in rounds of 2, which take 16 passes there and back, and then W. The
    // orders of its operations raise the bound. The optimum is 81.
    CHECK(bound_of(tight).value() >= (1.0 - precision) * (3 * (16 + 2) + 2 + 16 + 2));
    CHECK(bound_of(tight).value() == doctest::Approx(78).epsilon(precision));
}

TEST_CASE("the memory of a rank holds stashes for their lifetimes") {
    // Rank 0 holds one stash at a time, for three passes there and back. W frees the rest, and then the next F begins.
    const auto p = equal_layers(3, pipeline(stages_of_rank::one, 3, 6, memory_size{1}));
    CHECK(bound_of(p).value() == doctest::Approx(6 * (6 + 1)).epsilon(precision));
}

TEST_CASE("recomputation makes room, and takes time") {
    // If rank 0 recomputes x of 6 stashes, its work takes 6 × 3 + 2x, and the others' lifetimes take 6 × (6 − x).
    // The last W comes after them.
    auto p = equal_layers(3, pipeline(stages_of_rank::one, 3, 6, memory_size{1}));
    for (auto& each : p.layers)
        for (const auto& one : {option("keep", 1, 0, 0), option("full", 0, 0, 2)})
            each.storage.push_back(one);
    CHECK(bound_of(p).value() == doctest::Approx(22.75).epsilon(precision));
}

TEST_CASE("in a loop and in a v, memory holds the stashes of both stages") {
    for (const auto which : {stages_of_rank::loop, stages_of_rank::v}) {
        const auto p = equal_layers(4, pipeline(which, 2, 8, memory_size{2}));
        // The lifetimes on rank 0 are 8 and, as a loop, 4 or, as a v, 2.
        CHECK(bound_of(p).value() >= (1.0 - precision) * 8 * (which == stages_of_rank::loop ? 12 : 10) / 2);
    }
}

TEST_CASE("the orders of a rank's operations raise the bound") {
    // Each stage has one layer. Without the orders, the bounds are 21 and 15.
    const auto loop = equal_layers(4, pipeline(stages_of_rank::loop, 2, 3, memory_size{2}));
    CHECK(bound_of(loop).value() == doctest::Approx(25).epsilon(precision));
    const auto single = equal_layers(3, pipeline(stages_of_rank::one, 3, 4, memory_size{2}));
    CHECK(bound_of(single).value() == doctest::Approx(17).epsilon(precision));
    for (const auto& p : {loop, single}) {
        const auto found = plan_partition(p);
        REQUIRE(found);
        CHECK(bound_of(p) <= found->planned.objective);
    }
}

TEST_CASE("the bound ends if no division fits in memory") {
    CHECK(bound_of(equal_layers(4, pipeline(stages_of_rank::loop, 2, 3, memory_size{0.5}))).value() > 0.0);
}

TEST_CASE("memory that is exactly full of static memory leaves stashes that take none") {
    auto p = equal_layers(6, pipeline(stages_of_rank::one, 2, 4, memory_size{0.6}));
    for (std::size_t i = 0; i < p.layers.size(); ++i) {
        p.layers[i].costs.activation = p.layers[i].costs.weight_stash = memory_size{};
        p.layers[i].static_memory = memory_size{0.1 * static_cast<double>(1 + i % 3)};
    }
    CHECK(bound_of(p).value() == doctest::Approx(3 * 3 * 4 + 3).epsilon(precision));
}

TEST_CASE("stashes may exceed a limit by the tolerance, which the largest stash sets") {
    auto on = pipeline(stages_of_rank::one, 2, 4, memory_size{0.001});
    on.memory_limit[rank{1}] = memory_size::unlimited();
    partition_problem p;
    p.layers = {layer(4, 4, 4, 0.001), layer(4, 4, 4, 1000)};
    p.pipelines = {on};
    const auto found = plan_partition(p);
    REQUIRE(found);
    CHECK(bound_of(p) <= found->planned.objective);
}

TEST_CASE("stashes that fill the memory up to rounding count as fitting") {
    for (const double stash : {0.1, 0.2, 0.3, 0.7})
        for (std::size_t fitting = 2; fitting <= 12; ++fitting) {
            CAPTURE(stash);
            CAPTURE(fitting);
            auto p = equal_layers(3, pipeline(stages_of_rank::one, 2, 6,
                                              memory_size{stash * static_cast<double>(fitting) + 0.05 * stash}));
            for (auto& each : p.layers) {
                each.costs.activation = memory_size{stash};
                each.costs.weight_stash = memory_size{stash / 3};
            }
            const auto found = plan_partition(p);
            REQUIRE(found);
            CHECK(bound_of(p) <= (1.0 + 1e-9) * found->planned.objective);
        }
}

TEST_CASE("for span, frozen layers don't wait for gradients of other ranks") {
    partition_problem p;
    p.layers = {layer(10, 0, 0, 0), layer(1, 2, 1, 0)};
    p.layers.front().costs.gradients = gradient_kind::none;
    auto on = pipeline(stages_of_rank::one, 2, 2, memory_size::unlimited());
    on.objective = objective_kind::span;
    p.pipelines = {on};
    CHECK(bound_of(p).value() <= 20.0 * (1.0 + precision)); // two forwards of 10
    CHECK(bound_of(p).value() >= 20.0 * (1.0 - precision));

    p.pipelines = {with_placement(on, placement::loop<>{2})};
    p.layers.insert(p.layers.begin(), 2, p.layers.front());
    CHECK(bound_of(p).value() <= 40.0 * (1.0 + precision));
}

TEST_CASE("for span, a rank with a frozen first stage is done after the gradients of its second stage") {
    partition_problem p;
    p.layers = {layer(40, 0, 0, 0), layer(1, 18, 0.001, 0), layer(1, 1, 0.001, 0), layer(5, 5, 0.001, 0)};
    p.layers.front().costs.gradients = gradient_kind::none;
    auto on = pipeline(stages_of_rank::loop, 2, 8, memory_size::unlimited());
    on.objective = objective_kind::span;
    on.split_backward = false;
    p.pipelines = {on};
    CHECK(bound_of(p).value() <= 340.002 * (1.0 + precision)); // the optimum of the only partition

    p.layers = {layer(1, 0, 0, 0),     layer(40, 0, 0, 0),    layer(1, 9, 0.001, 0),
                layer(1, 9, 0.001, 0), layer(1, 1, 0.001, 0), layer(5, 5, 0.001, 0)};
    for (const std::size_t frozen : {0, 1})
        p.layers[frozen].costs.gradients = gradient_kind::none;
    on = pipeline(stages_of_rank::v, 3, 8, memory_size::unlimited());
    on.objective = objective_kind::span;
    on.split_backward = false;
    p.pipelines = {on};
    CHECK(bound_of(p).value() <= 341.002 * (1.0 + precision)); // a schedule of the only partition
}

TEST_CASE("a bound comes with a division that may come near it") {
    for (const auto which : {stages_of_rank::one, stages_of_rank::loop, stages_of_rank::v}) {
        const auto p = equal_layers(9, pipeline(which, 2, 8, memory_size::unlimited()));
        const auto cuts = detail::cuts_of(p);
        const detail::partition_space space{p, cuts, 0};
        const auto found = bound_of(space);
        REQUIRE_FALSE(found.division.empty());
        CHECK(space.bound_of(found.division, {}).value() == doctest::Approx(found.bound.value()).epsilon(precision));
    }
}

TEST_CASE("random layers: the bound is at most the shortest schedule of any partition") {
    random_numbers random{20261130};
    std::size_t compared = 0;
    std::size_t met = 0;
    const auto cases = oracle::random_cases(60);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        const auto p = tiny(random);
        if (!validate(p).empty()) continue;
        const auto cuts = detail::cuts_of(p);
        const detail::partition_space space{p, cuts, 0};
        if (!space.exists()) continue;
        auto shortest = duration::unlimited();
        space.for_each({}, [&](const detail::layer_division& each) {
            const auto one = space.with(each);
            if (space.shortage_of(one).all > memory_size{}) return;
            if (const auto found = oracle::exhaustive_optimum(one, 0.5, 5'000); found.objective)
                shortest = std::min(shortest, duration{*found.objective});
        });
        if (shortest.is_unlimited()) continue;
        const auto bound = bound_of(space).bound;
        ++compared;
        met += bound >= (1.0 - 3e-4) * shortest ? 1 : 0;
        CHECK(bound <= (1.0 + 1e-9) * shortest);
    }
    CHECK(compared >= cases / 4);
    CHECK(met >= cases / 40);
}

TEST_CASE("random layers: no partition has a schedule below the bound") {
    random_numbers random{20261129};
    std::size_t raised = 0;
    std::size_t planned = 0;
    const auto cases = oracle::random_cases(80);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        const auto p = drawn(random);
        if (!validate(p).empty()) continue;
        const auto cuts = detail::cuts_of(p);
        const detail::partition_space space{p, cuts, 0};
        if (!space.exists()) continue;
        const auto bound = bound_of(space).bound;
        duration all{};
        double speeds = 0.0;
        for (const auto& each : p.layers)
            all += each.costs.forward + each.costs.backward();
        for (const rank r : p.pipelines.front().graph.all_ranks())
            speeds += p.speed_of(r);
        const auto average = static_cast<double>(p.pipelines.front().graph.microbatches()) / speeds * all;
        raised += bound > 1.01 * average ? 1 : 0;
        space.for_each({}, [&](const detail::layer_division& each) {
            if (space.bound_of(each, {}) > 1.02 * bound) return; // no schedule is shorter than this
            plan_options quick;
            quick.without = {"adaptive", "cp", "milp", "modulo",
                             "rescheduling"}; // what takes long and finds little more
            const auto found = plan(space.with(each), quick);
            if (!found) return;
            ++planned;
            CHECK(found->objective >= (1.0 - 1e-9) * bound);
        });
    }
    CHECK(raised >= cases / 2);
    CHECK(planned >= cases / 4);
}

TEST_CASE("an option in which one layer moves its stash takes no transfer of a layer that moves nothing in it") {
    const auto p = parse_layers(R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": 4, "memory_limit": 15,
        "placements": ["linear"], "together": [[0, 1]], "layers": [
            { "forward": 10, "backward_input": 10, "backward_weight": 1, "activation": 10, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "attention", "transfer_size": 10, "offload": 1, "reload": 1 } ] },
            { "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "attention" },
                { "name": "mlp", "transfer_size": 1, "offload": 100, "reload": 100 } ] },
            { "forward": 11, "backward_input": 11, "backward_weight": 1, "activation": 0, "weight_stash": 0, "storage": [
                { "name": "keep" }, { "name": "attention" } ] } ] })",
                                "layers");
    CHECK(bound_of(p) <= duration{112}); // the optimum
}
