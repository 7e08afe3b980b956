// No deduction at a target may contradict a schedule that meets the target.
#include "optpipe/core/random.hpp"
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/prover.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

using namespace optpipe;

namespace {

/// A known solution; remembers the first place that contradicted it.
class known_solution {
public:
    known_solution(const cp::pipeline_model& m, cp::assignment a)
        : model_{&m}, known_{std::make_shared<cp::assignment>(std::move(a))}, first_{std::make_shared<std::string>()} {}

    static constexpr bool active() { return true; }
    [[nodiscard]] bool holds(const cp::fact& f) const {
        if (!f.is_bound) return known_->is_true(f.as_literal());
        const auto t = cp::task_of(f.code);
        if (t >= model_->tasks().tasks.size() || !known_->is_true(model_->tasks().tasks[t].presence)) return true;
        return (f.code == cp::earliest_of(t) ? known_->starts[t] : -known_->starts[t]) >= f.value;
    }
    void contradicted(const char* place) const {
        if (first_->empty()) *first_ = place;
    }
    [[nodiscard]] const std::string& first() const { return *first_; }

private:
    const cp::pipeline_model* model_;
    std::shared_ptr<cp::assignment> known_;
    std::shared_ptr<std::string> first_;
};
static_assert(cp::witness<known_solution>);

struct tally {
    std::size_t problems = 0;
    std::size_t conflicts = 0;
    /// For `check_shared`: the number of problems where the shorter schedule was refuted.
    std::size_t refuted = 0;
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
    cp::prover<known_solution> search{m, 1, known_solution{m, known}};
    search.limit(objective);
    CHECK(search.may_be_feasible());
    // The wrong phase first, so that there is something to learn.
    auto away = known;
    away.values.flip();
    search.hint(away);
    CHECK(search.search(2000, [] { return false; }) != cp::search_status::infeasible);
    CHECK(search.known_solution().first() == "");
    seen.conflicts += search.conflicts();
}

/// The same for a search that is stopped every few steps and resumed later.
void check_interrupted(const problem& p, const schedule& best, random_numbers& random, tally& seen) {
    const cp::pipeline_model m{p, cp::overtaking::pooled};
    const auto known = cp::assignment_of(m, best);
    ++seen.problems;
    cp::prover<known_solution> search{m, 1, known_solution{m, known}};
    search.limit(m.time().nearest(objective_of(p, best).value()));
    auto away = known;
    away.values.flip();
    search.hint(away);
    auto answer = cp::search_status::stopped;
    for (int pieces = 0; pieces < 200 && answer == cp::search_status::stopped; ++pieces)
        answer = search.search(2000, [&] { return random.chance(20); });
    CHECK(answer != cp::search_status::infeasible);
    CHECK(search.known_solution().first() == "");
    seen.conflicts += search.conflicts();
}

/// The same for a search that shares clauses with one for the same and one for a shorter schedule.
void check_shared(const problem& p, const schedule& best, cp::overtaking form, tally& seen) {
    const cp::pipeline_model m{p, form};
    const auto known = cp::assignment_of(m, best);
    if (form == cp::overtaking::forbidden && !represents(m, known)) return;
    ++seen.problems;
    const auto objective = m.time().nearest(objective_of(p, best).value());
    cp::clause_pool pool;
    cp::prover<known_solution> search{m, 1, known_solution{m, known}};
    cp::prover<> same{m, 2};
    cp::prover<> shorter{m, 3};
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
    CHECK(search.known_solution().first() == "");
    seen.conflicts += search.conflicts() + same.conflicts() + shorter.conflicts();
    seen.refuted += none_shorter ? 1 : 0;
}

tally check_many(const testing::problem_ranges& ranges, std::uint64_t seed, std::size_t count, bool shared = false) {
    random_numbers random{seed};
    tally seen;
    for (std::size_t i = 0; i < oracle::random_cases(count); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(r.problem, r.grid, 50'000);
        if (!best.proven || !best.objective) continue;
        for (const auto form : {cp::overtaking::pooled, cp::overtaking::forbidden, cp::overtaking::allowed})
            shared ? check_shared(r.problem, best.schedule, form, seen) : check(r.problem, best.schedule, form, seen);
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
        150, true);
    CHECK(seen.problems > oracle::random_cases(200));
    CHECK(seen.conflicts > oracle::random_cases(80));
    CHECK(seen.refuted > oracle::random_cases(200));
}
