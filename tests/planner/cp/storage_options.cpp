// Exact search with storage options, compared with exhaustive search; and conversions between schedules and
// assignments.
#include "optpipe/io/json_problem.hpp"
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

using namespace optpipe;

namespace {

struct search_tally {
    std::size_t proven = 0;
    std::size_t infeasible = 0;
};

/// A family of random problems: the i-th depends only on `seed` and i.
struct family {
    std::uint64_t seed;
    testing::problem_ranges ranges;
    /// Factor on the memory limits.
    double tightened = 1.0;

    [[nodiscard]] testing::random_problem draw(std::uint64_t i) const {
        random_numbers random{seed * 1'000'003 + i};
        auto wanted = ranges;
        wanted.storage_percent = 100;
        auto r = testing::make_random_problem(random, wanted);
        for (auto& limit : r.problem.memory_limit)
            limit = tightened * limit;
        return r;
    }
};

const family small{21, {.cells = 5, .offloading_percent = 60}};
const family two_ranks{
    22, {.ranks = 2, .stages = 4, .microbatches = 4, .cells = 6, .offloading_percent = 60, .span_percent = 10}};
const family little_memory{23, {.cells = 4, .offloading_percent = 40}, 0.4};

void check_against_exhaustive(const family& of, std::uint64_t i, search_tally& seen) {
    CAPTURE(of.seed);
    CAPTURE(i);
    const auto r = of.draw(i);
    if (is_described_by_costs(r.problem)) return;
    const auto best = oracle::exhaustive_optimum(r.problem, r.grid, 20'000);
    if (!best.proven) return;
    const auto optimum = best.objective ? duration{*best.objective} : duration::unlimited();
    bool sound = true;
    search_state state{r.problem, {}, [&](const search_step& step) {
                           sound = sound && (!best.objective || step.bound <= optimum * (1.0 + 1e-9));
                       }};
    cp_search(state, {.conflicts = 200'000});
    CHECK(sound);
    ++(best.objective ? seen.proven : seen.infeasible);
    if (!best.objective) {
        CHECK_FALSE(state.incumbent());
        CHECK(state.bound().is_unlimited());
        return;
    }
    REQUIRE(state.incumbent());
    const auto verdict = oracle::judge(r.problem, *state.incumbent());
    CHECK_MESSAGE(verdict.valid(), verdict.text());
    CHECK(state.proven());
    CHECK(state.objective().value() == doctest::Approx(optimum.value()));
}

search_tally check_many(const family& of, std::uint64_t count) {
    search_tally seen;
    for (std::uint64_t i = 0; i < count; ++i)
        check_against_exhaustive(of, i, seen);
    return seen;
}

} // namespace

TEST_CASE("storage options: the optimum, proven") {
    CHECK(check_many(small, oracle::random_cases(150)).proven > oracle::random_cases(60));
}

TEST_CASE("storage options: the optimum with more microbatches on two ranks, v placements among them") {
    CHECK(check_many(two_ranks, oracle::random_cases(150)).proven > oracle::random_cases(60));
}

TEST_CASE("storage options: too little memory for any of them is proven") {
    CHECK(check_many(little_memory, oracle::random_cases(200)).infeasible >= oracle::random_cases(20));
}

TEST_CASE("storage options: transfers that take no time and start with others are proven too") {
    // The memory of tasks that start together wasn't summed, so the search ended at a schedule that exceeds it.
    search_tally seen;
    check_against_exhaustive(two_ranks, 904, seen);
    check_against_exhaustive(two_ranks, 1363, seen);
    check_against_exhaustive(little_memory, 1011, seen);
    CHECK(seen.proven == 3);
}

TEST_CASE("a schedule with storage options is an assignment, and that is the schedule") {
    constexpr std::uint64_t seed = 24;
    std::size_t overtaking = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.ranks = 3, .stages = 4, .microbatches = 4, .cells = 12, .storage_percent = 100});
        const auto& p = given.problem;
        if (is_described_by_costs(p)) continue;
        // On the grid, because nothing waits unnecessarily.
        const auto drawn = *simulate(p, oracle::random_order(random, p));
        const cp::pipeline_model m{p, cp::overtaking::allowed};
        const auto read = cp::assignment_of(m, drawn);
        for (const auto& clause : m.tasks().clauses)
            CHECK(std::any_of(clause.begin(), clause.end(), [&](cp::literal l) { return read.is_true(l); }));
        for (const auto& k : m.tasks().knapsacks) {
            cp::ticks used = 0;
            for (const auto& term : k.terms)
                used += read.is_true(term.chosen) ? term.weight : 0;
            if (!read.is_true(k.guard)) continue;
            CHECK(used <= k.capacity);
            for (const auto& term : k.terms)
                for (const auto other : term.implied_terms)
                    CHECK((!read.is_true(term.chosen) || read.is_true(k.terms[other].chosen)));
        }
        const auto written = cp::schedule_of(m, read);
        REQUIRE(written);
        const auto verdict = oracle::judge(p, *written);
        REQUIRE_MESSAGE(verdict.valid(), verdict.text());
        CHECK(verdict.objective == doctest::Approx(oracle::judge(p, drawn).objective));
        const cp::pipeline_model fifo{p, cp::overtaking::forbidden};
        const auto in_order = cp::schedule_of(fifo, cp::assignment_of(fifo, drawn));
        overtaking += in_order && is_valid(p, *in_order) ? 0 : 1;
    }
    CHECK(overtaking > oracle::random_cases(15));
}

TEST_CASE("keep, offload and recompute together: a proven optimum") {
    const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/storage/store-p2-m4-k100.json");
    search_state state{p};
    cp_search(state, {.conflicts = 20'000});
    CHECK(state.proven());
    CHECK(state.objective() == duration{130.0});
    REQUIRE(state.incumbent());
    std::set<storage_index> used;
    for (const auto& timed : state.incumbent()->operations)
        used.insert(timed.op.storage);
    CHECK(used.size() > 1);
}
