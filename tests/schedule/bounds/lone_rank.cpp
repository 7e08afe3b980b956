#include "optpipe/schedule/bounds/lone_rank.hpp"

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using namespace optpipe::literals;

struct lone_rank_tally {
    int proven = 0;
    int tight = 0;
    int stronger = 0;
};

lone_rank_tally compare_with_all_schedules(std::uint64_t seed, std::uint64_t count,
                                           const oracle::problem_ranges& ranges) {
    lone_rank_tally t;
    for (std::uint64_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 10'000);
        if (!best.proven || !best.objective) continue;
        INFO(oracle::spell(best.schedule));
        CHECK(oracle::judge(given.problem, best.schedule).text() == "");
        ++t.proven;
        const auto known = bounds_of(given.problem).best();
        // From a bound that is far too small, the search finds the shortest sequence itself.
        const auto alone = lone_rank_bound(given.problem, 0.1 * known);
        const auto bound = lone_rank_bound(given.problem, known);
        CHECK(alone.value() <= *best.objective * (1.0 + 1e-9));
        CHECK(bound.value() <= *best.objective * (1.0 + 1e-9));
        CHECK(bound >= known);
        CHECK(bound.value() >= alone.value() * (1.0 - 1e-9));
        t.tight += alone.value() >= *best.objective * (1.0 - 1e-6) ? 1 : 0;
        t.stronger += bound.value() > known.value() * (1.0 + 1e-6) ? 1 : 0;
    }
    return t;
}

/// Four ranks, ten microbatches, and memory for two of them. One engine copies a stash out and back in longer than a
/// microbatch computes.
optpipe::problem with_slow_copies() {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{4, 10};
    const optpipe::stage_costs each{18.5_ms, 18.1_ms, 9.3_ms,
                                    1_gb,    0.5_gb,  optpipe::transfer_times{27.54_ms, 27.54_ms}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, 2_gb);
    p.p2p = optpipe::hop_times<>{0.6_ms};
    return p;
}

} // namespace

TEST_CASE("one rank alone needs no longer than the pipeline") {
    const auto t = compare_with_all_schedules(91, 1500, {.cells = 6, .offloading_percent = 80});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(900)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(100)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(10)));
}

TEST_CASE("nor with more microbatches on one or two ranks") {
    const auto t = compare_with_all_schedules(
        92, 1500, {.ranks = 2, .stages = 2, .microbatches = 5, .cells = 8, .offloading_percent = 90, .steps = 3});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(600)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(200)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(20)));
}

TEST_CASE("nor with other storage options") {
    const auto t = compare_with_all_schedules(
        93, 600,
        {.ranks = 2, .stages = 3, .microbatches = 4, .cells = 5, .offloading_percent = 70, .storage_percent = 100});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(300)));
}

TEST_CASE("the sequence of transfers on one engine raises the bound") {
    const auto p = with_slow_copies();
    const auto known = strong_bounds_of(p).best();
    const auto bound = lone_rank_bound(p, known);
    CHECK(known.value() < 580.0);
    CHECK(bound.value() == doctest::Approx(607.24));
    auto full = p;
    full.transfer.engines = 2;
    CHECK(lone_rank_bound(full, strong_bounds_of(full).best()) < bound);
}

TEST_CASE("a stopped search, or one without work, keeps what is known") {
    const auto p = with_slow_copies();
    const auto known = strong_bounds_of(p).best();
    const optpipe::stop_when always{[] { return true; }};
    CHECK(lone_rank_bound(p, known, always) == known);
    CHECK(lone_rank_bound(p, known, {}, 0.0) == known);
    CHECK(lone_rank_bound(p, known) > known);
    CHECK(lone_rank_bound(p, 700_ms) == 700_ms);
}
