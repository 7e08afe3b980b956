// Problems without full backwards, for runtimes that would execute a B as I and then W; compared with exhaustive
// search.
#include "formulation/model_checks.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_auto.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

/// Most weight stashes are larger than the restored stash, so a full backward would help.
testing::random_problem without_full(std::uint64_t seed, oracle::problem_ranges ranges = {}) {
    ranges.split_percent = ranges.split_only_percent = 100;
    random_numbers random{seed};
    auto given = oracle::make_random_problem(random, ranges);
    auto& p = given.problem;
    for (auto& c : p.costs)
        if (random.chance(70)) c.weight_stash = c.activation + memory_size{0.25 * static_cast<double>(random.below(5))};
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = std::max(p.memory_limit[r], least_memory(p, r).needed);
    return given;
}

void check_valid(const problem& p, const schedule& s) {
    const auto verdict = oracle::judge(p, s);
    CHECK_MESSAGE(verdict.valid(), verdict.text());
    CHECK(is_valid(p, s));
    CHECK(std::none_of(s.operations.begin(), s.operations.end(),
                       [](const timed_operation& t) { return t.op.kind == operation_kind::backward; }));
}

} // namespace

TEST_CASE("no B: what is planned is the optimum, and no bound is above it") {
    std::size_t compared = 0;
    std::size_t above = 0; // the optimum with full backwards
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(120); ++seed) {
        CAPTURE(seed);
        const auto given = without_full(seed, {.cells = 6, .storage_percent = seed % 3 == 0 ? 100U : 0U});
        const auto& p = given.problem;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 20'000);
        if (!best.proven) continue;
        REQUIRE(best.objective.has_value());
        check_valid(p, best.schedule);
        ++compared;
        const duration optimum{*best.objective};
        CHECK(bounds_of(p).best() <= optimum * (1.0 + 1e-9));

        auto fused = p;
        fused.full_backward = true;
        const auto with_full = oracle::exhaustive_optimum(fused, given.grid, 20'000);
        if (with_full.proven && *with_full.objective < 0.999 * *best.objective) ++above;

        search_state state{p};
        cp_search(state, {.conflicts = 200'000});
        REQUIRE(state.incumbent());
        check_valid(p, *state.incumbent());
        CHECK(state.proven());
        CHECK(state.objective().value() == doctest::Approx(optimum.value()));

        search_state local{p};
        local_search(local, {.seed = seed, .moves = 2000});
        REQUIRE(local.incumbent());
        check_valid(p, *local.incumbent());
        CHECK(local.objective() >= optimum * (1.0 - 1e-9));
    }
    CHECK(compared >= oracle::random_cases(60));
    constexpr std::uint64_t enough = 100; // a few percent of the cases are such
    if (oracle::random_cases(120) >= enough) CHECK(above > 0);
}

TEST_CASE("no B: the optimum of the model is that of the problem") {
    std::size_t compared = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(60); ++seed) {
        CAPTURE(seed);
        const auto given = without_full(seed, {.cells = 4, .storage_percent = seed % 3 == 0 ? 100U : 0U});
        const auto best = oracle::exhaustive_optimum(given.problem, given.grid, 20'000);
        if (!best.proven || !best.objective) continue;
        const auto f = formulation::formulate(given.problem, {});
        REQUIRE(f.has_value());
        model_checks::check_witness(given.problem, **f, best.schedule);
        const auto r = model_checks::solved(**f);
        CHECK_MESSAGE(model_checks::near(r.objective, *best.objective),
                      r.objective << " instead of " << *best.objective);
        model_checks::check_solution(given.problem, **f, r);
        ++compared;
    }
    CHECK(compared >= oracle::random_cases(40));
}

TEST_CASE("no B: builders make none, and where one microbatch at a time fits there is a schedule") {
    std::size_t made = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(150); ++seed) {
        CAPTURE(seed);
        const auto p =
            without_full(
                seed,
                {.ranks = 4, .stages = 8, .microbatches = 8, .cells = 32, .storage_percent = seed % 3 == 0 ? 100U : 0U})
                .problem;
        if (!fits_one_at_a_time(p)) continue;
        const auto some = time_order(p, order_within_memory(p, least_memory(p)));
        REQUIRE_MESSAGE(some.has_value(), describe(some.why()));
        check_valid(p, *some);
        const auto check = [&](const outcome<schedule>& built) {
            if (built) check_valid(p, *built);
            made += built ? 1 : 0;
        };
        check(build_schedule(p, gpipe));
        check(build_schedule(p, one_forward_one_backward));
        check(build_schedule(p, zero_bubble_auto));
        const auto adapted = build_schedule(p, adaptive_builder<>{.effort = 1});
        CHECK_MESSAGE(adapted.has_value(), describe(adapted.why()));
        check(adapted);
    }
    CHECK(made >= oracle::random_cases(150));
}

TEST_CASE("no B: an order that has some is timed as I and then W, a schedule that has some is refused") {
    const stage_costs c{duration{1}, duration{2}, duration{3}, memory_size{1}, memory_size{2}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 2}), per_stage<stage_costs>(2, c)};
    const auto with_full = build_schedule(p, one_forward_one_backward);
    REQUIRE(with_full);
    p.full_backward = false;
    CHECK_FALSE(is_valid(p, *with_full));
    const auto split = build_schedule(p, one_forward_one_backward);
    REQUIRE(split);
    check_valid(p, *split);
    CHECK(objective_of(p, *split) < objective_of(p, *with_full)); // gradients arrive earlier

    // One stash of 1 and a weight stash of 2 don't fit in 2, where B would take 1. So W of the first microbatch must
    // end before F of the second.
    CHECK(least_memory(p, rank{0}).needed == memory_size{2});
    for (auto& limit : p.memory_limit)
        limit = memory_size{2};
    const auto planned = plan(p, {.time_limit = 60s});
    REQUIRE(planned);
    check_valid(p, planned->schedule);
    CHECK(planned->why == plan_end::optimal);
    p.full_backward = true;
    const auto fused = plan(p, {.time_limit = 60s});
    REQUIRE(fused);
    CHECK(fused->objective < planned->objective);
    for (auto& limit : p.memory_limit)
        limit = memory_size{1};
    CHECK(validate(p).empty());
    p.full_backward = false;
    CHECK(validate(p).size() == 2);
}
