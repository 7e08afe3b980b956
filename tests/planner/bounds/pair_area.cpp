#include "optpipe/planner/bounds/pair_area.hpp"

#include "optpipe/core/stop_check.hpp"
#include "optpipe/planner/bounds/lower_bound.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/construct/merge_pairs.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/pair_optimum.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

/// The published problem of `pair_problem` in v placement, with this much memory on every rank.
problem scarce(std::size_t ranks, std::size_t microbatches, double pair, double limit) {
    auto p = pair_problem(ranks, microbatches, pair, true);
    for (auto& each : p.memory_limit)
        each = memory_size{limit};
    return p;
}
duration without_program(const problem& p) { return bounds_of(p).best(); }
double bound_of(const problem& p) { return pair_area_bound(p, without_program(p)).value(); }

/// A random problem with equal microbatches and pairs, and with little memory.
problem drawn(oracle::random_numbers& random, std::size_t cells) {
    auto p = oracle::make_random_problem(random, {.cells = cells, .graph_percent = 50}).problem;
    p.objective = objective_kind::makespan;
    p.microbatches = {};
    return oracle::with_random_pairs(random, oracle::with_random_memory(random, std::move(p), 10));
}

} // namespace

TEST_CASE("a pair saves time, and holds memory for longer") {
    stage_costs unit{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}};
    problem p{any_graph{1, 5, to_any_graph(graph<1, 5>{}).placement()}, per_stage<stage_costs>(1, unit)};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2}, {}});
    p.memory_limit[rank{0}] = memory_size{1};
    // With x pairs, the work is 15 − x. Each microbatch holds 1 for 2 and 0.5 for 1, and each pair adds 1 · (2 − 1) for
    // its forward and 1 · 2 − 1 · 1 − 0.5 · 1 for its backward, in all 12.5 + 1.5 · x. Both are 14 if x is 1.
    CHECK(bound_of(p) == doctest::Approx(14.0));
    p.objective = objective_kind::span;
    CHECK(bound_of(p) == doctest::Approx(14.0));
    p.memory_limit[rank{0}] = memory_size{5};
    CHECK(bound_of(p) == without_program(p).value());
}

TEST_CASE("published pairs in half of DualPipeV's memory: above the work, and below what CP-SAT proves") {
    struct row {
        std::size_t ranks;
        std::size_t microbatches;
        double pair;
        double limit;
        double least;
        double optimum;
    };
    for (const row& of : {row{2, 6, 4.0, 2.5, 35.9, 41.0}, row{2, 6, 5.5, 2.5, 37.8, 43.25},
                          row{3, 6, 4.0, 3.5, 36.7, 47.0}, row{3, 8, 4.0, 3.5, 47.5, 61.0}}) {
        CAPTURE(of.ranks);
        CAPTURE(of.microbatches);
        const auto p = scarce(of.ranks, of.microbatches, of.pair, of.limit);
        CHECK(bound_of(p) > without_program(p).value());
        CHECK(bound_of(p) >= of.least);
        CHECK(bound_of(p) <= of.optimum);
    }
}

TEST_CASE("plan and lower_bound know the bound") {
    const auto p = scarce(4, 16, 4.0, 4.5);
    const auto bound = pair_area_bound(p, without_program(p));
    CHECK(bound > 1.2 * without_program(p));
    CHECK(lower_bound(p) == bound);
    plan_options options;
    options.gap = 1.0; // ends with the first schedule
    const auto planned = plan(p, options);
    REQUIRE(planned);
    CHECK(planned->bound >= bound);
}

TEST_CASE("without limits, or if microbatches differ, the known bound is returned") {
    const duration known{7.0};
    CHECK(pair_area_bound(pair_problem(4, 16, 4.0, true), known) == known);
    auto p = scarce(4, 3, 4.0, 4.5);
    p.microbatches.set_factors(std::vector<cost_factors>{{1, 1, 1, 1, 1}, {2, 2, 2, 2, 1}, {1, 1, 1, 1, 1}});
    CHECK(pair_area_bound(p, known) == known);
    p.overlaps = {};
    CHECK(pair_area_bound(p, known) == known);
}

TEST_CASE("a stopped bound is the known one") {
    const stop_when at_once{[] { return true; }};
    CHECK(pair_area_bound(scarce(4, 16, 4.0, 4.5), duration{7.0}, at_once) == duration{7.0});
}

TEST_CASE("operations that take nearly no time are on the paths") {
    per_stage<stage_costs> costs(3);
    for (const stage s : costs.indices()) {
        const duration each{s == stage{0} ? 1.0 : 1e-17};
        costs[s] = {each, each, each, memory_size{1}, memory_size{0.5}};
    }
    problem p{any_graph{1, 4, placement::map<>{per_stage<rank>(3, rank{0})}}, costs};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2}, {}});
    p.memory_limit[rank{0}] = memory_size{3};
    CHECK(bound_of(p) == doctest::Approx(without_program(p).value()));
}

TEST_CASE("stashes that differ by less than the tolerance of memory") {
    const stage_costs quick{duration{0.1}, duration{0.1}, duration{0.1}, memory_size{1}, {}};
    per_stage<stage_costs> costs(3, quick);
    costs[stage{0}].activation = memory_size{1.04};
    costs[stage{2}].activation = memory_size{1e5};
    per_stage<rank> ranks(3, rank{0});
    ranks[stage{2}] = rank{1};
    problem p{any_graph{2, 5, placement::map<>{ranks}}, costs};
    p.p2p = hop_times<>{duration{10}};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{0.3}, {}});
    p.memory_limit[rank{0}] = memory_size{2};
    const auto serial = simulate(p, one_at_a_time(p));
    REQUIRE(serial);
    REQUIRE(validate(p, *serial).empty());
    CHECK(pair_area_bound(p, without_program(p)) <= objective_of(p, *serial));
}

TEST_CASE("no optimum with pairs is below the bound") {
    constexpr std::uint64_t seed = 31;
    const auto cases = oracle::random_cases(1000);
    int higher = 0;
    int proven = 0;
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = drawn(random, 3 + i % 2);
        if (p.overlaps.empty()) continue;
        const double optimum = oracle::pair_optimum{p}.makespan();
        const double known = without_program(p).value();
        const double bound = bound_of(p);
        CHECK(bound <= optimum * (1.0 + 1e-9));
        higher += bound > known * (1.0 + 1e-9) ? 1 : 0;
        proven += bound >= optimum * (1.0 - 1e-6) && known < optimum * (1.0 - 1e-6) ? 1 : 0;
    }
    if (cases < 1000) return;
    CHECK(higher > 80);
    CHECK(proven > 10);
}

TEST_CASE("no schedule with pairs is shorter than the bound") {
    constexpr std::uint64_t seed = 32;
    const auto cases = oracle::random_cases(300);
    int higher = 0;
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p = drawn(random, 12);
        if (i % 2 == 0) p.objective = objective_kind::span;
        if (p.overlaps.empty()) continue;
        const double bound = bound_of(p);
        higher += bound > without_program(p).value() * (1.0 + 1e-9) ? 1 : 0;
        for (int n = 0; n < 5; ++n) {
            const auto timed = simulate(p, oracle::random_order(random, p));
            if (timed) CHECK(bound <= objective_of(p, merge_pairs(p, *timed)).value() * (1.0 + 1e-9));
        }
    }
    if (cases >= 300) CHECK(higher > 20);
}
