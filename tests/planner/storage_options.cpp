#include "optpipe/io/json_problem.hpp"
#include "optpipe/planner.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

testing::random_problem some_problem(std::uint64_t seed, oracle::problem_ranges ranges = {}) {
    ranges.storage_percent = 100;
    random_numbers random{seed};
    return oracle::make_random_problem(random, ranges);
}

/// The names of the options that a schedule uses.
std::set<std::string> used_options(const problem& p, const schedule& s) {
    std::set<std::string> names;
    for (const auto& timed : s.operations)
        if (timed.op.kind == operation_kind::forward) names.insert(std::string{storage_of(p, timed.op).name.view()});
    return names;
}

} // namespace

TEST_CASE("local search: what it offers with storage options is valid, and what the state reports") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(150); ++seed) {
        CAPTURE(seed);
        oracle::problem_ranges ranges;
        ranges.ranks = 4;
        ranges.microbatches = 6;
        ranges.cells = 20;
        const auto given = some_problem(seed, ranges);
        search_state state{given.problem};
        local_search(state, {.seed = seed, .moves = 3000});
        REQUIRE(state.incumbent());
        const auto verdict = oracle::judge(given.problem, *state.incumbent());
        REQUIRE_MESSAGE(verdict.valid(), verdict.text());
        CHECK(verdict.objective == doctest::Approx(state.objective().value()));
    }
}

namespace {

struct plan_tally {
    std::size_t compared = 0;
    std::size_t optimal = 0;
    std::size_t proven = 0;

    void compare(const testing::random_problem& given, std::chrono::milliseconds time) {
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 4'000);
        if (!best.proven) return;
        REQUIRE(best.objective.has_value());
        const auto planned = plan(given.problem, {.time_limit = time, .threads = 2});
        REQUIRE(planned);
        const auto verdict = oracle::judge(given.problem, planned->schedule);
        REQUIRE_MESSAGE(verdict.valid(), verdict.text());
        CHECK(planned->objective.value() >= *best.objective * (1.0 - 1e-6));
        CHECK(planned->bound.value() <= *best.objective * (1.0 + 1e-6));
        ++compared;
        const bool is_best = planned->objective.value() <= *best.objective * (1.0 + 1e-6);
        CHECK((is_best || planned->why != plan_end::optimal));
        optimal += is_best ? 1 : 0;
        proven += planned->why == plan_end::optimal ? 1 : 0;
    }
};

plan_tally compare_plans(std::uint64_t seed, std::uint64_t count, const oracle::problem_ranges& ranges) {
    plan_tally seen;
    for (std::uint64_t i = 1; i <= oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        seen.compare(some_problem(seed * 1'000'003 + i, ranges), 20ms);
    }
    MESSAGE(seen.compared << " compared: " << seen.optimal << " optimal, " << seen.proven << " proven");
    return seen;
}

} // namespace

TEST_CASE("plans with storage options are never below the optimum, nor bounds above it") {
    const auto seen = compare_plans(1, 100, {.cells = 4, .offloading_percent = 60});
    CHECK(seen.optimal >= seen.compared / 2);
}

TEST_CASE("nor with more microbatches on two ranks, v placements and shared links among them") {
    const auto seen =
        compare_plans(2, 60, {.ranks = 2, .stages = 4, .microbatches = 3, .cells = 6, .offloading_percent = 60});
    CHECK(seen.optimal >= seen.compared / 2);
}

TEST_CASE("keep, offload and recompute are mixed where that is better than any of them alone") {
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/storage/store-p2-m4-k100.json");
    search_state state{p};
    local_search(state, {.seed = 1, .moves = 100'000});
    REQUIRE(state.incumbent());
    CHECK(is_valid(p, *state.incumbent()));
    CHECK(state.objective() < duration{174.0}); // the best one with one option for all microbatches
    CHECK(used_options(p, *state.incumbent()).size() > 1);
}

TEST_CASE("a deterministic search with storage options repeats itself") {
    const auto name = oracle::random_cases(2) > 1 ? "store-p3-m5-k100" : "store-p2-m4-k100";
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/storage/" + std::string{name} + ".json");
    const auto once = plan(p, {.threads = 2});
    const auto again = plan(p, {.threads = 2});
    REQUIRE(once);
    REQUIRE(again);
    CHECK(once->objective == again->objective);
    CHECK(once->schedule.operations == again->schedule.operations);
}
