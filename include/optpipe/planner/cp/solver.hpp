#pragma once

#include "optpipe/core/jagged_array.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/learning/luby.hpp"
#include "optpipe/learning/vsids.hpp"
#include "optpipe/planner/cp/clause_pool.hpp"
#include "optpipe/planner/cp/clauses.hpp"
#include "optpipe/planner/cp/conflict_analysis.hpp"
#include "optpipe/planner/cp/disjunctive.hpp"
#include "optpipe/planner/cp/knapsack.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/network.hpp"
#include "optpipe/planner/cp/precedence.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Why a search ended.
enum class search_status {
    solved,     ///< all variables are assigned, and `now().earliest` has the starts
    infeasible, ///< there is no solution
    refuted,    ///< there is no solution with the assumptions
    stopped,    ///< the conflict limit was reached, or a stop was requested
};

/// How `solver` searches. Not tuned, unless a comment says otherwise.
struct solver_parameters {
    /// Number of conflicts until a restart, per unit of Luby's sequence. Early restarts leave a bad start sooner, but
    /// repeat more work.
    std::size_t restart_unit = 100;
    /// Activities are multiplied by this factor, in (0, 1), after each conflict (as in MiniSat). With a lower factor,
    /// the latest conflicts count more.
    double activity_decay = 0.95;
    /// Unit of the random initial activities. Each initial activity is below the activity of one conflict.
    double tie_breaker = 1e-9;
    /// Initial activities are below this number of units (`tie_breaker`). A hint adds this number of units: hinted
    /// variables come first. Hints were measured in 1200 searches, for objectives 0.5 or 3 % below that of the hinted
    /// schedule. With hints, 3 to 6 % more searches succeeded, and searches had 0.5 to 0.7 times the conflicts. In
    /// searches without storage options, hints made no difference.
    std::size_t most_tie_breakers = 1000;
    /// Number of steps per task after which a propagation is interrupted. On pipelines of 4 to 24 ranks, no propagation
    /// took more than 83 steps per task.
    std::size_t most_steps_per_task = 1000;
    /// A propagation that is interrupted after n steps per task counts as n / `steps_per_conflict` conflicts.
    std::size_t steps_per_conflict = 50;
    /// Limit on the number of learned clauses. Beyond the limit, half of the clauses are deleted, and the limit is
    /// multiplied by 1 + 1 / `learned_growth`. More clauses prune more, but slow propagation down.
    std::size_t most_learned = 4000;
    std::size_t learned_growth = 10;
    /// Clauses with fewer than `kept_levels` decision levels are always kept, as in Glucose (Audemard and Simon 2009).
    std::uint32_t kept_levels = 3;
    /// Number of propagation steps, and of decisions or conflicts, between two looks at the clock.
    std::size_t steps_between_looks = 64;
    std::size_t decisions_between_looks = 32;
};

/// Clause-learning tree search over choices. The search propagates to a fixed point, learns a clause from each
/// conflict, restarts, and branches by activity with phase saving (Marques-Silva and Sakallah 1996; Moskewicz et al.
/// 2001; Pipatsrisawat and Darwiche 2007).
class solver {
public:
    /// `m` must outlive the solver. Starts are non-negative. `at_most` and `at_least` tighten the bounds of starts.
    explicit solver(const model& m, std::uint64_t seed = 1)
        : model_{&m}, network_{m}, clauses_{m.variables()}, trail_{m, network_, clauses_}, arcs_{m, network_},
          transitive_{m},
          knapsacks_{m}, machines_{m}, analysis_{m.variables(), 2 * m.tasks.size()}, order_{m.variables()},
          phase_(m.variables(), -1) {
        add_variables(seed);
        std::vector<std::vector<task_index>> tasks(m.variables());
        for (task_index t = 0; t < m.tasks.size(); ++t)
            if (m.tasks[t].presence != always) tasks[m.tasks[t].presence.variable()].push_back(t);
        tasks_of_ = jagged_array{tasks};
        for (task_index t = 0; t < m.tasks.size(); ++t)
            feasible_ = feasible_ && trail_.raise(earliest_of(t), 0, reason{});
        for (const auto& c : m.clauses)
            feasible_ = feasible_ && add_clause(c);
    }
    solver(const solver&) = delete;
    solver& operator=(const solver&) = delete;

    // Limits may be tightened between searches, but never relaxed.

    void at_most(task_index t, ticks latest_start) {
        backtrack(0);
        feasible_ = feasible_ && trail_.raise(latest_of(t), -latest_start, reason{});
    }
    void at_least(task_index t, ticks earliest_start) {
        backtrack(0);
        feasible_ = feasible_ && trail_.raise(earliest_of(t), earliest_start, reason{});
    }
    void tighten(std::size_t difference, ticks gap) {
        backtrack(0);
        network_.tighten(difference, gap);
        const auto& d = model_->differences[difference];
        machines_.on_task(d.from);
        machines_.on_task(d.to);
        tightened_.push_back(static_cast<std::uint32_t>(difference));
    }
    /// Shares the clauses learned from now on with other solvers of the same model. `pool` must outlive the solver.
    void share(clause_pool& pool) { pool_ = clause_pool::member{pool}; }
    /// Sets the objective limit under which clauses learned from now on hold. The limit may only decrease.
    void set_limit(ticks objective) { limit_ = objective; }
    /// The objective limit, or the largest number if no limit was set.
    [[nodiscard]] ticks limit() const { return limit_; }
    /// Sets the value that is tried first for the variable of `l`. Until the first conflict, hinted variables are
    /// decided first. If the hints are a solution, the solution is thus found at once.
    void hint(literal l) {
        const auto v = l.variable();
        phase_[v] = l.negated() ? 0 : 1;
        if (conflicts_ == 0)
            order_.set_activity(v,
                                order_.activity(v) + with_.tie_breaker * static_cast<double>(with_.most_tie_breakers));
    }

    /// Later searches look for solutions in which these literals are true. Clauses learned under assumptions hold
    /// without them, too.
    void assume(std::vector<literal> some) {
        backtrack(0);
        assumptions_ = std::move(some);
    }

    /// Propagates without decisions. Ends early if `stop()` returns true. Returns false if there is no solution.
    bool propagate_root(std::function<bool()> stop = {}) {
        stop_ = std::move(stop);
        interrupted_ = false;
        backtrack(0);
        if (feasible_) feasible_ = propagate_tightened() && propagate();
        return feasible_;
    }

    /// Searches for a solution, with at most `conflicts` conflicts, until `stop()` returns true. After a call without
    /// conflicts, the next call continues at the same node. Otherwise, short calls would repeat the same decisions.
    search_status search(std::size_t conflicts, const std::function<bool()>& stop) {
        const auto first = conflicts_;
        const auto last = conflicts_ + std::min(conflicts, std::numeric_limits<std::size_t>::max() - conflicts_);
        if (crept_at_root_) return give_up(last);
        if (feasible_ && trail_.level() > 0) { // when the model is tightened, the solver returns to the root
            stop_ = stop;
            interrupted_ = false;
        } else {
            if (!propagate_root(stop)) return search_status::infeasible;
            if (crept_at_root_) return give_up(last);
            if (!import_clauses()) return search_status::infeasible;
        }
        auto restart = conflicts_ + restart_after();
        for (std::size_t steps = 0;; ++steps) {
            if (interrupted_ || (steps % with_.decisions_between_looks == 0 && stop())) return leave(first);
            if (!propagate()) {
                ++conflicts_;
                if (learn()) continue;
                if (!feasible_) return search_status::infeasible;
                backtrack(0);
                return search_status::refuted;
            }
            if (interrupted_ || conflicts_ >= last) return leave(first);
            if (conflicts_ >= restart) {
                ++restarts_;
                restart = conflicts_ + restart_after();
                backtrack(0);
                if (clauses_.learned().size() > most_learned_) reduce_learned();
                if (!import_clauses()) return search_status::infeasible;
            }
            if (trail_.level() == 0 && !assumptions_.empty()) {
                if (trail_.decide_all(assumptions_)) continue;
                backtrack(0);
                return search_status::refuted;
            }
            const auto next = choose();
            if (next == always) return search_status::solved;
            trail_.decide(next);
        }
    }

    [[nodiscard]] const trail& now() const { return trail_; }
    [[nodiscard]] std::size_t conflicts() const { return conflicts_; }
    /// Number of propagation steps, which measures the cost of a search even without conflicts.
    [[nodiscard]] std::size_t steps() const { return steps_; }

private:
    /// Variable 0 is `always` and is never decided. The seed breaks ties.
    void add_variables(std::uint64_t seed) {
        random_numbers random{seed};
        for (std::uint32_t v = 1; v < model_->variables(); ++v) {
            order_.set_activity(v, with_.tie_breaker * static_cast<double>(random.below(with_.most_tie_breakers)));
            order_.insert(v);
        }
    }
    search_status give_up(std::size_t all_conflicts) {
        conflicts_ = all_conflicts;
        return search_status::stopped; // the search is at the root
    }
    search_status leave(std::size_t first_conflict) {
        if (conflicts_ > first_conflict) backtrack(0);
        return search_status::stopped;
    }
    bool add_clause(const std::vector<literal>& c) {
        if (c.size() > 1) {
            clauses_.add(c, false, 0);
            return true;
        }
        return trail_.assign(c.empty() ? never : c.front(), reason{});
    }
    bool propagate_tightened() {
        for (const auto d : tightened_)
            for (const auto i : network_.of_difference(d)) {
                const auto& a = network_[i];
                const bool guarded = trail_.is_true(a.guards[0]) && trail_.is_true(a.guards[1]);
                if (guarded && !trail_.raise(a.target, trail_.bound(a.source) + a.gap, reason{})) return false;
            }
        tightened_.clear();
        return true;
    }

    // Propagates. The cheapest rules come first.

    bool propagate() {
        if (propagate_all()) return true;
        arcs_.drop_work();
        knapsacks_.drop_work();
        machines_.drop_work();
        return false;
    }
    bool propagate_all() {
        for (std::size_t steps = 1;; ++steps) {
            ++steps_;
            if (steps % with_.steps_between_looks == 0 && is_enough(steps)) return interrupted_ = true;
            if (next_ < trail_.size()) {
                const auto e = trail_[next_++];
                if (e.is_bound && !trail_.is_latest(e.code, next_ - 1)) continue; // a later entry has a higher value
                if (!(e.is_bound ? on_bound(e.code) : on_literal(e.as_literal()))) return false;
            } else if (arcs_.has_work()) {
                if (!arcs_.propagate_next(trail_)) return false;
            } else if (knapsacks_.has_work()) {
                if (!knapsacks_.propagate_next(trail_)) return false;
            } else if (machines_.has_work()) {
                if (!machines_.propagate_next(trail_)) return false;
            } else {
                return true;
            }
        }
    }
    /// Whether a propagation must be interrupted. Bounds may rise in steps that are tiny compared with the total rise.
    /// A propagation with too many steps is interrupted, and the next search starts at the root again. The search gives
    /// up if a propagation at the root is interrupted: another attempt would take as long.
    bool is_enough(std::size_t steps) {
        if (stop_ && stop_()) return true;
        if (steps < with_.most_steps_per_task * (model_->tasks.size() + 1)) return false;
        crept_at_root_ = crept_at_root_ || trail_.level() == 0;
        conflicts_ += with_.most_steps_per_task / with_.steps_per_conflict;
        return true;
    }
    bool on_bound(bound_index b) {
        const auto t = task_of(b);
        if (trail_.is_absent(t)) return true;
        machines_.on_task(t);
        return arcs_.on_bound(trail_, b);
    }
    bool on_literal(literal l) {
        knapsacks_.on_literal(l);
        machines_.on_literal(l);
        for (const auto t : tasks_of_[l.variable()]) {
            machines_.on_task(t);
            if (trail_.is_present(t) && !arcs_.on_presence(trail_, t)) return false;
        }
        return propagate_clauses(trail_, clauses_, l) && arcs_.on_literal(trail_, l) &&
               transitive_.on_literal(trail_, l);
    }

    // Learning.

    /// Returns false if the model is infeasible, or infeasible with the assumptions.
    bool learn() {
        const std::uint32_t assumed = assumptions_.empty() ? 0 : 1;
        const auto what = analysis_.learn(trail_, assumed, [&](std::uint32_t v) { order_.bump(v); });
        if (what.final) {
            feasible_ = what.level > 0;
            return false;
        }
        order_.decay(with_.activity_decay);
        if (pool_.shares(what.distinct_levels)) pool_.add({what.clause, what.distinct_levels, limit_});
        backtrack(what.level);
        if (what.clause.size() == 1) {
            feasible_ = feasible_ && trail_.assign(what.clause.front(), reason{});
            return feasible_;
        }
        const auto c = clauses_.add(what.clause, true, what.distinct_levels);
        return trail_.assign(what.clause.front(), reason{reason::kind::clause, c, 0});
    }
    /// Adds the clauses that other members of the pool have learned. Returns false if there is no solution. Called at
    /// the root.
    bool import_clauses() {
        for (auto& c : pool_.take(limit_)) {
            if (std::any_of(c.literals.begin(), c.literals.end(), [&](literal l) { return trail_.is_true(l); }))
                continue;
            std::erase_if(c.literals, [&](literal l) { return trail_.is_false(l); });
            if (c.literals.size() > 1)
                clauses_.add(c.literals, true, c.distinct_levels);
            else if (c.literals.empty() || !trail_.assign(c.literals.front(), reason{}))
                return feasible_ = false;
        }
        return true;
    }
    void backtrack(std::uint32_t level) {
        trail_.backtrack(level, [&](const auto& e, std::size_t position) {
            if (e.is_bound) return;
            const auto l = e.as_literal();
            phase_[l.variable()] = l.negated() ? 0 : 1;
            if (l.variable() != 0) order_.insert(l.variable());
            if (position >= next_) return;
            knapsacks_.on_unassigned(l);
            machines_.on_unassigned(l);
        });
        next_ = std::min(next_, trail_.size());
    }
    /// Deletes half of the learned clauses. Called at the root, where reasons are no longer needed.
    void reduce_learned() {
        std::vector<std::uint32_t> levels;
        for (const auto c : clauses_.learned())
            levels.push_back(clauses_.levels_of(c));
        auto middle = levels.begin() + static_cast<std::ptrdiff_t>(levels.size() / 2);
        std::nth_element(levels.begin(), middle, levels.end());
        const auto most = std::max(*middle, with_.kept_levels);
        clauses_.erase_learned_if([&](clause_index c) { return clauses_.levels_of(c) >= most; });
        most_learned_ += most_learned_ / with_.learned_growth;
    }

    // Branching.

    literal choose() {
        while (const auto v = order_.pop()) {
            const literal l{*v, false};
            if (!trail_.is_open(l)) continue;
            return phase(*v) ? l : !l;
        }
        return always;
    }
    bool phase(std::uint32_t v) const {
        if (phase_[v] >= 0) return phase_[v] == 1;
        const auto& c = model_->choices[v];
        if (c.first == c.second) return false;
        return trail_.earliest(c.first) + trail_.latest(c.first) <= trail_.earliest(c.second) + trail_.latest(c.second);
    }
    [[nodiscard]] std::size_t restart_after() const { return with_.restart_unit * learning::luby(restarts_ + 1); }

    static constexpr solver_parameters with_{};

    const model* model_;
    network network_;
    clause_store clauses_;
    trail trail_;
    arc_propagation arcs_;
    transitivity transitive_;
    knapsack_propagation knapsacks_;
    disjunctive machines_;
    conflict_analysis analysis_;
    learning::vsids order_;
    std::vector<std::int8_t> phase_;
    jagged_array<task_index> tasks_of_;
    clause_pool::member pool_{};
    ticks limit_ = std::numeric_limits<ticks>::max();
    std::vector<std::uint32_t> tightened_;
    std::vector<literal> assumptions_;
    std::size_t next_ = 0;
    std::function<bool()> stop_{};
    bool interrupted_ = false;
    bool crept_at_root_ = false;
    std::size_t conflicts_ = 0;
    std::size_t steps_ = 0;
    std::size_t restarts_ = 0;
    std::size_t most_learned_ = with_.most_learned;
    bool feasible_ = true;
};

} // namespace optpipe::cp
