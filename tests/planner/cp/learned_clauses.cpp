// No clause that is learned at a target may contradict a schedule that meets the target.
#include "optpipe/core/random.hpp"
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/bounding_form.hpp"
#include "optpipe/planner/cp/clause_pool.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/neighbourhoods.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/prover.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

using namespace optpipe;

namespace {

/// Whether any clause that others have added to the pool, for the objective of a known solution or more, contradicts
/// that solution.
bool contradicts(cp::clause_pool::member& others, cp::ticks objective, const cp::assignment& known) {
    const auto is_false = [&](const cp::clause_pool::clause& c) {
        return std::none_of(c.literals.begin(), c.literals.end(), [&](cp::literal l) { return known.is_true(l); });
    };
    const auto learned = others.take(objective);
    return std::any_of(learned.begin(), learned.end(), is_false);
}
/// All clauses are shared, however many levels they have.
constexpr cp::clause_pool_parameters all_clauses{.most_levels = std::numeric_limits<std::uint32_t>::max()};

struct tally {
    std::size_t problems = 0;
    std::size_t conflicts = 0;
    /// For `check_shared`: the number of problems where the shorter schedule was refuted. For `check_nearby`: the
    /// number of neighbourhoods that are known to hold no shorter schedule.
    std::size_t refuted = 0;
    /// The number of assumptions.
    std::size_t kept = 0;
};

/// Whether the assignment of a schedule, read in FIFO order, is a schedule.
bool represents(const cp::pipeline_model& m, const cp::assignment& known) {
    const auto s = cp::schedule_of(m, known);
    return s && is_valid(m.source(), *s);
}

void check(const problem& p, const schedule& best, cp::overtaking form, tally& seen) {
    const cp::pipeline_model m{p, form};
    const auto known = cp::assignment_of(m, best);
    if (form == cp::overtaking::forbidden && !represents(m, known)) return;
    ++seen.problems;
    const auto objective = m.time().nearest(objective_of(p, best).value());
    cp::clause_pool pool{all_clauses};
    cp::clause_pool::member others{pool};
    cp::prover search{m, 1};
    search.share(pool);
    search.limit(objective);
    CHECK(search.may_be_feasible());
    // The wrong phase first, so that there is something to learn.
    auto away = known;
    away.values.flip();
    search.hint(away);
    CHECK(search.search(2000, [] { return false; }) != cp::search_status::infeasible);
    CHECK_FALSE(contradicts(others, objective, known));
    seen.conflicts += search.conflicts();
}

/// The same for a search that is stopped every few steps and resumed later.
void check_interrupted(const problem& p, const schedule& best, random_numbers& random, tally& seen) {
    const cp::pipeline_model m{p, cp::bounding_form(p)};
    const auto known = cp::assignment_of(m, best);
    ++seen.problems;
    const auto objective = m.time().nearest(objective_of(p, best).value());
    cp::clause_pool pool{all_clauses};
    cp::clause_pool::member others{pool};
    cp::prover search{m, 1};
    search.share(pool);
    search.limit(objective);
    auto away = known;
    away.values.flip();
    search.hint(away);
    auto answer = cp::search_status::stopped;
    for (int pieces = 0; pieces < 200 && answer == cp::search_status::stopped; ++pieces)
        answer = search.search(2000, [&] { return random.chance(20); });
    CHECK(answer != cp::search_status::infeasible);
    CHECK_FALSE(contradicts(others, objective, known));
    seen.conflicts += search.conflicts();
}

/// The same for a search that shares clauses with one for the same and one for a shorter schedule.
void check_shared(const problem& p, const schedule& best, cp::overtaking form, tally& seen) {
    const cp::pipeline_model m{p, form};
    const auto known = cp::assignment_of(m, best);
    if (form == cp::overtaking::forbidden && !represents(m, known)) return;
    ++seen.problems;
    const auto objective = m.time().nearest(objective_of(p, best).value());
    cp::clause_pool pool{all_clauses};
    cp::clause_pool::member others{pool};
    cp::prover search{m, 1};
    cp::prover same{m, 2};
    cp::prover shorter{m, 3};
    auto away = known;
    away.values.flip();
    search.hint(away);
    search.share(pool);
    same.share(pool);
    shorter.share(pool);
    search.limit(objective);
    same.limit(objective);
    shorter.limit(objective - 1);
    const auto pieces = [&](auto& any) { return any.search(20, [] { return false; }); };
    bool none_shorter = false;
    for (int turn = 0; turn < 20; ++turn) {
        CHECK(pieces(search) != cp::search_status::infeasible);
        CHECK(pieces(same) != cp::search_status::infeasible);
        none_shorter = none_shorter || pieces(shorter) == cp::search_status::infeasible;
    }
    CHECK_FALSE(contradicts(others, objective, known));
    seen.conflicts += search.conflicts() + same.conflicts() + shorter.conflicts();
    seen.refuted += none_shorter ? 1 : 0;
}

/// The same for a search in neighbourhoods of the schedule, each freed in part, which must find the schedule in each.
void check_nearby(const problem& p, const schedule& best, cp::overtaking form, tally& seen) {
    const cp::pipeline_model m{p, form};
    const auto known = cp::assignment_of(m, best);
    if (form == cp::overtaking::forbidden && !represents(m, known)) return;
    ++seen.problems;
    const auto objective = m.time().nearest(objective_of(p, best).value());
    cp::clause_pool pool{all_clauses};
    cp::clause_pool::member others{pool};
    cp::prover search{m, 1};
    cp::prover shorter{m, 2};
    cp::neighbourhoods around{m, 3};
    auto away = known;
    away.values.flip();
    search.share(pool);
    shorter.share(pool);
    search.limit(objective);
    shorter.limit(objective - 1);
    constexpr std::size_t most = 2000;
    for (int turn = 0; turn < 20; ++turn) {
        const auto kept = around.next(known);
        CHECK(std::all_of(kept.begin(), kept.end(), [&](cp::literal l) { return known.is_true(l); }));
        seen.kept += kept.size();
        search.assume(kept);
        search.hint(away);
        const auto answer = search.search(most, [] { return false; });
        CHECK(answer != cp::search_status::infeasible);
        CHECK(answer != cp::search_status::refuted);
        shorter.assume(kept);
        const auto none = shorter.search(most, [] { return false; });
        if (form != cp::overtaking::pooled) CHECK(none != cp::search_status::solved); // `pooled` is a relaxation
        around.adapt(none);
        seen.refuted += none == cp::search_status::refuted || none == cp::search_status::infeasible ? 1 : 0;
        if (!kept.empty()) {
            auto contradictory = kept;
            contradictory.push_back(!kept.front());
            search.assume(contradictory);
            CHECK(search.search(most, [] { return false; }) == cp::search_status::refuted);
        }
    }
    CHECK_FALSE(contradicts(others, objective, known));
    // What was learned under assumptions holds without them.
    search.assume({});
    CHECK(search.search(most, [] { return false; }) != cp::search_status::infeasible);
    seen.conflicts += search.conflicts() + shorter.conflicts();
}

tally check_many(const testing::problem_ranges& ranges, std::uint64_t seed, std::size_t count,
                 decltype(check)& check_one = check) {
    random_numbers random{seed};
    tally seen;
    for (std::size_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(r.problem, r.grid, 50'000);
        if (!best.proven || !best.objective) continue;
        for (const auto form : {cp::overtaking::pooled, cp::overtaking::forbidden, cp::overtaking::allowed})
            if (form != cp::overtaking::pooled || cp::bounding_form(r.problem) == form)
                check_one(r.problem, best.schedule, form, seen);
    }
    return seen;
}

} // namespace

TEST_CASE("problems of every kind") {
    const auto seen = check_many({.cells = 8, .span_percent = 20}, 11, 200);
    CHECK(seen.problems > oracle::random_cases(300));
    CHECK(seen.conflicts > oracle::random_cases(80)); // nearly all conflicts are from a few problems
}

TEST_CASE("with offloading") {
    const auto seen = check_many(
        {.ranks = 2, .stages = 4, .microbatches = 4, .cells = 8, .offloading_percent = 100, .span_percent = 10}, 12,
        200);
    CHECK(seen.problems > oracle::random_cases(300));
    CHECK(seen.conflicts > oracle::random_cases(80)); // nearly all conflicts are from a few problems
}

TEST_CASE("with storage options") {
    const auto seen = check_many({.ranks = 2,
                                  .stages = 4,
                                  .microbatches = 4,
                                  .cells = 6,
                                  .offloading_percent = 60,
                                  .span_percent = 10,
                                  .storage_percent = 100},
                                 13, 200);
    CHECK(seen.problems > oracle::random_cases(200));
    CHECK(seen.conflicts > oracle::random_cases(200));
}

TEST_CASE("with interruptions") {
    constexpr std::uint64_t seed = 15;
    random_numbers random{seed};
    tally seen;
    for (std::size_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        const auto r = testing::make_random_problem(
            random, {.ranks = 2, .stages = 4, .microbatches = 4, .cells = 8, .offloading_percent = 60});
        const auto best = oracle::exhaustive_optimum(r.problem, r.grid, 20'000);
        if (best.proven && best.objective) check_interrupted(r.problem, best.schedule, random, seen);
    }
    CHECK(seen.problems > oracle::random_cases(100));
    CHECK(seen.conflicts > oracle::random_cases(80)); // nearly all conflicts are from a few problems
}

TEST_CASE("searches that share what they learn") {
    const auto seen = check_many(
        {.ranks = 2, .stages = 4, .microbatches = 4, .cells = 8, .offloading_percent = 40, .storage_percent = 60}, 21,
        150, check_shared);
    CHECK(seen.problems > oracle::random_cases(200));
    CHECK(seen.conflicts > oracle::random_cases(80));
    CHECK(seen.refuted > oracle::random_cases(200));
}

TEST_CASE("searches in neighbourhoods") {
    const auto seen = check_many({.ranks = 2,
                                  .stages = 4,
                                  .microbatches = 4,
                                  .cells = 8,
                                  .offloading_percent = 60,
                                  .span_percent = 10,
                                  .storage_percent = 40},
                                 22, 100, check_nearby);
    CHECK(seen.problems > oracle::random_cases(100));
    CHECK(seen.conflicts > oracle::random_cases(40)); // nearly all conflicts are from a few problems
    CHECK(seen.refuted > oracle::random_cases(1000));
    CHECK(seen.kept > oracle::random_cases(10'000));
}
