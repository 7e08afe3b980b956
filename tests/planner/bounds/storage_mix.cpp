#include "optpipe/planner/bounds/storage_mix.hpp"

#include "optpipe/core/stop_check.hpp"
#include "optpipe/planner/bounds/lower_bound.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/four_options.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using oracle::four_options;
using namespace optpipe::literals;

optpipe::duration mix_bound(const optpipe::problem& p, optpipe::stop_check stop = {}) {
    return storage_mix_bound(p, bounds_of(p).best(), stop);
}

struct storage_tally {
    int proven = 0;
    int tight = 0;
    int stronger = 0;

    void compare(const optpipe::problem& p, double optimum) {
        ++proven;
        const auto relaxed = bounds_of(p).best();
        const auto bound = mix_bound(p);
        CHECK(relaxed.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound.value() <= optimum * (1.0 + 1e-9));
        CHECK(bound >= relaxed);
        CHECK(propagation_bound(p, relaxed).value() <= optimum * (1.0 + 1e-9));
        tight += bound.value() >= optimum * (1.0 - 1e-6) ? 1 : 0;
        stronger += bound.value() > relaxed.value() * (1.0 + 1e-6) ? 1 : 0;
    }
};

storage_tally compare_with_all_schedules(std::uint64_t seed, std::uint64_t count, oracle::problem_ranges ranges) {
    ranges.storage_percent = 100;
    storage_tally result;
    for (std::uint64_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, ranges);
        if (is_described_by_costs(given.problem)) continue;
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 4'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        INFO(oracle::spell(best.schedule));
        CHECK(oracle::judge(given.problem, best.schedule).text() == "");
        result.compare(given.problem, *best.objective);
    }
    return result;
}

} // namespace

TEST_CASE("no schedule with storage options is shorter than a bound") {
    const auto t = compare_with_all_schedules(81, 250, {.cells = 4, .offloading_percent = 60});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(200)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(100)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(40)));
}

TEST_CASE("nor with more microbatches on two ranks, v placements among them") {
    const auto t = compare_with_all_schedules(
        82, 120, {.ranks = 2, .stages = 4, .microbatches = 3, .cells = 6, .offloading_percent = 60});
    CHECK(t.proven >= static_cast<int>(oracle::random_cases(60)));
    CHECK(t.tight >= static_cast<int>(oracle::random_cases(40)));
    CHECK(t.stronger >= static_cast<int>(oracle::random_cases(15)));
}

TEST_CASE("nor is a schedule that is drawn at random") {
    constexpr std::uint64_t seed = 83;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 4, .stages = 4, .microbatches = 8, .cells = 24, .storage_percent = 100});
        const auto bound = mix_bound(given.problem);
        for (int k = 0; k < 10; ++k) {
            const auto drawn = oracle::judge(given.problem, oracle::random_schedule(random, given));
            REQUIRE(drawn.valid());
            CHECK(bound.value() <= drawn.objective * (1.0 + 1e-9));
        }
    }
}

TEST_CASE("the storage mix sees what recomputation costs") {
    const auto p = four_options(2, 4, 1.2_gb);
    CHECK(bounds_of(p).best().value() == doctest::Approx(118.5));
    // 126.1 with any shares, 128.5 with integral numbers of microbatches.
    CHECK(mix_bound(p).value() == doctest::Approx(128.5).epsilon(1e-6));
    CHECK(lower_bound(p).value() == doctest::Approx(128.5).epsilon(1e-6));
    CHECK(strong_bounds_of(p).best() < 127_ms);
    // With memory for everything nothing is lost; without the cheap options more is.
    CHECK(mix_bound(four_options(2, 4, 4_gb)) == bounds_of(p).best());
    auto less = p;
    for (auto& list : less.storage)
        list.erase(list.begin() + 1, list.begin() + 3);
    CHECK(mix_bound(less).value() > mix_bound(p).value() + 1.0);
    // If stopped at once, it is the bound of the relaxations.
    const optpipe::stop_when at_once{[] { return true; }};
    CHECK(mix_bound(p, at_once) <= bounds_of(p).best());
    CHECK(mix_bound(p) == mix_bound(p));
}
