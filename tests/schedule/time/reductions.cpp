// The time of a step with data parallelism in addition to the pipeline.
#include <optpipe/pipeline/placement.hpp>
#include <optpipe/schedule/builders/all.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/reductions.hpp>
#include <optpipe/testing/random_problem.hpp>

#include <doctest/doctest.h>
#include <schedule/quick_builders.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

/// Forwards of 1, backwards of 2.
template <class Placement = placement::linear> problem even(std::size_t ranks, std::size_t microbatches) {
    stage_costs costs;
    costs.forward = costs.backward_input = costs.backward_weight = duration{1.0};
    costs.activation = memory_size{1.0};
    const auto shape = to_any_graph(graph<dynamic, dynamic, Placement>{ranks, microbatches});
    const auto stages = shape.stages();
    return {shape, per_stage<stage_costs>(stages, costs)};
}

} // namespace

TEST_CASE("the last stage is reduced while the first still computes") {
    const auto p = even(2, 2);
    const auto s = *build_schedule(p, one_forward_one_backward);
    // Rank 1: F0 B0 F1 B1 from 1 to 7; rank 0's last backward is from 7 to 9.
    const auto step = simulate_reductions(p, s, per_stage<duration>(2, duration{1.5}));
    CHECK(step.reductions == std::vector<timed_reduction>{{stage{1}, duration{7.0}, duration{8.5}},
                                                          {stage{0}, duration{9.0}, duration{10.5}}});
    CHECK(step.objective == duration{10.5});
    CHECK(step.exposed == duration{1.5});

    const auto long_last = simulate_reductions(p, s, [] {
        per_stage<duration> times(2);
        times[stage{1}] = duration{5.0};
        return times;
    }());
    CHECK(long_last.objective == duration{12.0});
    CHECK(long_last.exposed == duration{3.0});
}

TEST_CASE("reductions that take no time cost nothing") {
    const auto p = even(4, 8);
    const auto s = *build_schedule(p, zero_bubble_h1);
    const auto step = simulate_reductions(p, s, per_stage<duration>(4));
    CHECK(step.objective == objective_of(p, s));
    CHECK(step.exposed == duration{});
}

TEST_CASE("the longest time that a rank is engaged counts where the objective says so") {
    auto p = even(2, 2);
    p.objective = objective_kind::span;
    const auto s = *build_schedule(p, one_forward_one_backward);
    // Rank 0 is engaged from 0 to 9, rank 1 from 1 to 7.
    per_stage<duration> times(2);
    times[stage{1}] = duration{2.5};
    CHECK(simulate_reductions(p, s, times).objective == duration{9.0});
    times[stage{1}] = duration{4.0};
    const auto step = simulate_reductions(p, s, times);
    CHECK(step.objective == duration{10.0});
    CHECK(step.exposed == duration{1.0});
}

TEST_CASE("a rank reduces one stage at a time, none before its last weight gradient") {
    constexpr std::uint64_t first_seed = 8400;
    constexpr testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30};
    for (std::uint64_t seed = first_seed; seed < first_seed + 10; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random, ranges).problem;
        per_stage<duration> times(p.graph.stages());
        for (auto& each : times)
            each = duration{static_cast<double>(random.below(8))};
        for_each_quick_builder([&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) return;
            const auto step = simulate_reductions(p, *s, times);
            REQUIRE(step.reductions.size() == p.graph.stages());
            per_rank<duration> free(p.graph.ranks());
            for (const auto& [at, start, end] : step.reductions) {
                CHECK(end == start + times[at]);
                auto& own = free[p.rank_of(at)];
                CHECK(start >= own);
                auto last = duration{};
                for (const auto& timed : s->operations)
                    if (timed.op.stage == at &&
                        (timed.op.kind == operation_kind::backward_weight || timed.op.kind == operation_kind::backward))
                        last = std::max(last, timed.end);
                CHECK(start == std::max(last, own)); // and at once
                own = end;
            }
            CHECK(step.objective >= objective_of(p, *s));
            CHECK(step.exposed == step.objective - objective_of(p, *s));
        });
    }
}
