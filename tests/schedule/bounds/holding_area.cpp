// Memory × time of graphs and of microbatches that differ. That the bound is never above an optimum is tested here with
// exhaustive search, and in tests/oracle/graphs.cpp with random schedules.
#include "optpipe/schedule/bounds/holding_area.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/pipeline_builder.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace optpipe;

constexpr stage_costs unit{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{}};

/// A linear pipeline whose microbatches have these factors; only rank 0 has a memory limit.
problem uneven(std::size_t ranks, const stage_costs& each, memory_size limit,
               const std::vector<cost_factors>& factors) {
    const graph<dynamic, dynamic> g{ranks, factors.size()};
    auto p = make_problem(to_any_graph(g), uniform_memory{each}, memory_size::unlimited());
    p.memory_limit[rank{0}] = limit;
    p.microbatches.set_factors(factors);
    return p;
}

/// Microbatches from 0.4 to 1.6 times the mean, on eight ranks.
problem drawn(std::uint64_t seed, memory_size limit) {
    optpipe::random_numbers random{seed};
    std::vector<cost_factors> factors;
    for (int m = 0; m < 32; ++m) {
        const double length = 0.4 + 1.2 * random.share();
        factors.push_back({length, length, length, length, 1.0});
    }
    return uneven(8, unit, limit, factors);
}

} // namespace

TEST_CASE("what one microbatch takes is held from its forward to its gradient, and to its weight gradient") {
    auto each = unit;
    each.weight_stash = memory_size{1};
    const auto p = uneven(2, each, memory_size{2}, {{1, 1, 1, 1, 1}, {2, 2, 2, 2, 1}});
    // 1 GB for 4 and 1 ms, and 2 GB for 8 and 2 ms: 25 GB·ms. One operation takes all of the 2 GB, so there is no ramp.
    CHECK(holding_area_bound(p).value() == doctest::Approx(12.5).epsilon(1e-5));
    CHECK(bounds_of(p).memory_area.value() == doctest::Approx(12.5).epsilon(1e-5));
}

TEST_CASE("memory fills and empties step by step") {
    auto p = uneven(2, unit, memory_size{2}, {{1, 1, 1, 1, 1}, {1, 1, 2, 1, 1}, {1, 1, 3, 1, 1}});
    p.p2p = hop_times<>{duration{10}};
    // Three stashes for 24 ms each. Until the second forward starts, and once the last but one gradient has ended, 1 GB
    // is unused; the bound has half of this. The shortest weight gradient follows.
    CHECK(holding_area_bound(p).value() == doctest::Approx((72.0 + 1.0) / 2.0 + 1.0).epsilon(1e-5));
    p.memory_limit[rank{0}] = memory_size::unlimited();
    CHECK(holding_area_bound(p) == duration{});
}

TEST_CASE("what an edge holds is released by another rank") {
    pipeline_builder stages;
    auto frozen = unit;
    frozen.backward_input = frozen.backward_weight = duration{};
    frozen.activation = memory_size{};
    frozen.gradients = gradient_kind::none;
    const auto first = stages.add(rank{0}, frozen);
    const auto second = stages.add(rank{1}, frozen, {{first}});
    stages.add(rank{2}, frozen, {{second}, {first, 1.0, memory_size{1}}});
    auto p = stages.build(6);
    p.memory_limit[rank{0}] = memory_size{1};
    // One at a time: forwards on three ranks, one after the other.
    CHECK(graph_bound(p).value() == doctest::Approx(8.0));
    CHECK(holding_area_bound(p).value() == doctest::Approx(18.0).epsilon(1e-5));
    // Rank 0 isn't engaged while the others run the last microbatch.
    p.objective = objective_kind::span;
    CHECK(holding_area_bound(p) == duration{});
}

TEST_CASE("all microbatches differ and memory is scarce: far above the load, and below a schedule") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        const auto p = drawn(seed, memory_size{4});
        const auto bound = holding_area_bound(p);
        CHECK(bound > 1.2 * graph_bound(p));
        const auto built = adaptive_builder<>{.effort = 1}(p);
        REQUIRE(built);
        const auto timed = simulate(p, *built);
        REQUIRE(timed);
        CHECK(bound <= objective_of(p, *timed));
        CHECK(holding_area_bound(drawn(seed, memory_size{100})) < graph_bound(p));
    }
}

TEST_CASE("no optimum is below the bound") {
    constexpr std::uint64_t seed = 29;
    const auto cases = oracle::random_cases(200);
    int proven = 0;
    int above_load = 0;
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.cells = 8, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 100});
        const auto& p = given.problem;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 5'000);
        if (!best.proven || !best.objective) continue;
        ++proven;
        const auto bound = holding_area_bound(p).value();
        CHECK(bound <= *best.objective * (1.0 + 1e-9));
        above_load += bound > graph_bound(p).value() * (1.0 + 1e-9) ? 1 : 0;
    }
    if (cases < 200) return;
    CHECK(proven > 100);
    CHECK(above_load > 3);
}

TEST_CASE("a stopped bound is valid") {
    const stop_when at_once{[] { return true; }};
    CHECK(holding_area_bound(drawn(1, memory_size{5}), at_once) == duration{});
}
