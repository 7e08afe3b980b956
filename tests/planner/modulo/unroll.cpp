#include "optpipe/planner/modulo/unroll.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

} // namespace

TEST_CASE("1F1B and ZB-H1 unrolled from M to 2M are what they are for 2M") {
    for (const std::size_t ranks : {2U, 4U, 7U}) {
        CAPTURE(ranks);
        const auto check = [&](const auto& build) {
            const std::size_t count = 4 * ranks;
            const auto p = unit_problem(ranks, count);
            const auto twice = with_microbatches(p, 2 * count);
            const auto shorter = *build_schedule(p, build);
            const auto lanes = detail::lanes_by_start(p, shorter);
            const detail::segment_finder finder{p, lanes};
            const auto segment = finder.find(0.5 * objective_of(p, shorter), 1);
            REQUIRE(segment.has_value());
            CHECK(segment->count == 1);
            const auto unrolled = time_order(twice, unroll(twice, lanes, *segment, count));
            REQUIRE(unrolled.has_value());
            CHECK(oracle::judge(twice, *unrolled).valid());
            // M more periods of three passes each.
            CHECK(objective_of(twice, *unrolled).value() ==
                  doctest::Approx(objective_of(p, shorter).value() + 3.0 * static_cast<double>(count)));
            CHECK(objective_of(twice, *unrolled) == objective_of(twice, *build_schedule(twice, build)));
        };
        check(one_forward_one_backward);
        check(zero_bubble_h1);
    }
}

TEST_CASE("every segment found can be repeated: valid, complete, with the same memory") {
    std::size_t stretched_ones = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(150); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 12, .cells = 48}).problem;
        adaptive_builder<> quick;
        quick.effort = 1;
        const auto shorter = build_schedule(p, quick);
        if (!shorter) continue;
        const auto before = measure(p, *shorter);
        const auto lanes = detail::lanes_by_start(p, *shorter);
        const detail::segment_finder finder{p, lanes};
        for (std::size_t count = 1; count <= 3; ++count)
            for (const double place : {0.2, 0.5, 0.7}) {
                const auto segment = finder.find(place * before.makespan, count);
                if (!segment) continue;
                constexpr std::size_t times = 2;
                const auto longer = with_microbatches(p, p.graph.microbatches() + times * count);
                const auto timed = time_order(longer, unroll(longer, lanes, *segment, times));
                REQUIRE(timed.has_value());
                const auto verdict = oracle::judge(longer, *timed);
                CHECK_MESSAGE(verdict.valid(), verdict.text());
                ++stretched_ones;
            }
    }
    CHECK(stretched_ones >= oracle::random_cases(100));
}

TEST_CASE("where nothing recurs nothing is found") {
    const auto p = unit_problem(3, 2);
    const auto shorter = *build_schedule(p, one_forward_one_backward);
    const auto lanes = detail::lanes_by_start(p, shorter);
    const detail::segment_finder finder{p, lanes};
    CHECK_FALSE(finder.find(0.5 * objective_of(p, shorter), 2).has_value());
}
