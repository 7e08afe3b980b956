#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/exact/activity.hpp"
#include "optpipe/planner/exact/clauses.hpp"
#include "optpipe/planner/exact/conflict.hpp"
#include "optpipe/planner/exact/disjunctive.hpp"
#include "optpipe/planner/exact/literal.hpp"
#include "optpipe/planner/exact/model.hpp"
#include "optpipe/planner/exact/network.hpp"
#include "optpipe/planner/exact/precedence.hpp"
#include "optpipe/planner/exact/spending.hpp"
#include "optpipe/planner/exact/trail.hpp"
#include "optpipe/planner/exact/witness.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::exact {

/// How a search ended.
enum class verdict {
    solved,     ///< every choice is made; `trail().earliest` are the starts
    impossible, ///< there is no solution
    stopped,    ///< the effort is spent, or somebody asked to stop
};

/// Branch and bound on choices: propagation to a fixed point, learning from every conflict, restarts, and branching on
/// what took part in conflicts lately, on the side that it had last (Marques-Silva and Sakallah 1996; Moskewicz et al.
/// 2001; Pipatsrisawat and Darwiche 2007).
template <witness Witness = no_witness> class solver {
public:
    using trail_type = trail<Witness>;

    /// `m` outlives the solver. Nothing is known of starts but that they aren't negative: see `restrict`.
    explicit solver(const model& m, std::uint64_t seed = 1, Witness known = {})
        : model_{&m}, network_{m}, clauses_{m.variables()}, trail_{m, network_, clauses_, std::move(known)},
          arcs_{network_}, choices_{m}, transitive_{m}, spending_{m}, machines_{m},
          analysis_{m.variables(), 2 * m.tasks.size()}, order_{m.variables(), seed}, side_(m.variables(), -1),
          task_dirty_(m.tasks.size(), false), tasks_of_(m.variables()) {
        for (task_index t = 0; t < m.tasks.size(); ++t)
            if (m.tasks[t].presence != always) tasks_of_[m.tasks[t].presence.variable()].push_back(t);
        for (task_index t = 0; t < m.tasks.size(); ++t)
            possible_ = possible_ && trail_.raise(earliest_of(t), 0, cause{});
        for (const auto& c : m.clauses)
            possible_ = possible_ && add_clause(c);
    }
    solver(const solver&) = delete;
    solver& operator=(const solver&) = delete;

    // What may be tightened between searches; never loosened.

    void at_most(task_index t, ticks latest_start) {
        go_back(0);
        possible_ = possible_ && trail_.raise(latest_of(t), -latest_start, cause{});
    }
    void at_least(task_index t, ticks earliest_start) {
        go_back(0);
        possible_ = possible_ && trail_.raise(earliest_of(t), earliest_start, cause{});
    }
    void widen(std::size_t difference, ticks gap) {
        go_back(0);
        network_.widen(difference, gap);
        const auto& d = model_->differences[difference];
        mark(d.from);
        mark(d.to);
        widened_.push_back(static_cast<std::uint32_t>(difference));
    }
    /// The side to try first.
    void prefer(literal l) { side_[l.variable()] = l.negated() ? 0 : 1; }

    /// All that follows without a decision, or as much of it as there is time for until `stop()`. false: there is no
    /// solution.
    bool propagate_root(std::function<bool()> stop = {}) {
        stop_ = std::move(stop);
        interrupted_ = false;
        go_back(0);
        if (possible_) possible_ = follow_widened() && propagate();
        return possible_;
    }

    /// `stop()` is asked now and then.
    verdict search(std::size_t conflicts, const std::function<bool()>& stop) {
        if (!propagate_root(stop)) return verdict::impossible;
        const auto last = conflicts_ + std::min(conflicts, std::numeric_limits<std::size_t>::max() - conflicts_);
        auto restart = conflicts_ + restart_after();
        for (std::size_t steps = 0;; ++steps) {
            if (interrupted_ || (steps % 32 == 0 && stop())) return leave();
            if (!propagate()) {
                ++conflicts_;
                if (!learn()) return verdict::impossible;
                continue;
            }
            if (interrupted_ || conflicts_ >= last) return leave();
            if (conflicts_ >= restart) {
                ++restarts_;
                restart = conflicts_ + restart_after();
                go_back(0);
                if (clauses_.learned().size() > most_learned_) forget();
            }
            const auto next = choose();
            if (next == always) return verdict::solved;
            trail_.decide(next);
        }
    }

    [[nodiscard]] const trail_type& now() const { return trail_; }
    [[nodiscard]] std::size_t conflicts() const { return conflicts_; }
    [[nodiscard]] Witness& known() { return trail_.known(); }

private:
    verdict leave() {
        go_back(0);
        return verdict::stopped;
    }
    bool add_clause(const std::vector<literal>& c) {
        if (c.size() > 1) {
            clauses_.add(c, false, 0);
            return true;
        }
        return trail_.assign(c.empty() ? never : c.front(), cause{});
    }
    bool follow_widened() {
        for (const auto d : widened_)
            for (const auto side : {0U, 1U}) {
                const auto i = 2 * d + side;
                const auto& a = network_[i];
                const bool guarded = trail_.is_true(a.guards[0]) && trail_.is_true(a.guards[1]);
                if (guarded && !trail_.raise(a.target, trail_.bound(a.source) + a.gap, cause{})) return false;
            }
        widened_.clear();
        return true;
    }

    // Propagation: what is cheap first.

    bool propagate() {
        if (propagate_all()) return true;
        for (const auto t : dirty_tasks_)
            task_dirty_[t] = false;
        dirty_tasks_.clear();
        spending_.drop_work();
        machines_.drop_work();
        return false;
    }
    bool propagate_all() {
        // Bounds may creep towards each other for very long; what is left undone is done by the next propagation.
        constexpr std::size_t patience = 64;
        for (std::size_t steps = 1;; ++steps) {
            if (steps % patience == 0 && stop_ && stop_()) {
                interrupted_ = true;
                return true;
            }
            if (next_ < trail_.size()) {
                const auto e = trail_[next_++];
                if (!(e.is_bound ? on_bound(e.code) : on_literal(e.as_literal()))) return false;
            } else if (!dirty_tasks_.empty()) {
                const auto t = dirty_tasks_.back();
                dirty_tasks_.pop_back();
                task_dirty_[t] = false;
                if (!choices_.on_task(trail_, t)) return false;
            } else if (spending_.has_work()) {
                if (!spending_.propagate_next(trail_)) return false;
            } else if (machines_.has_work()) {
                if (!machines_.propagate_next(trail_)) return false;
            } else {
                return true;
            }
        }
    }
    void mark(task_index t) {
        machines_.on_task(t);
        if (task_dirty_[t]) return;
        task_dirty_[t] = true;
        dirty_tasks_.push_back(t);
    }
    bool on_bound(bound_index b) {
        const auto t = task_of(b);
        if (trail_.is_absent(t)) return true;
        mark(t);
        return arcs_.on_bound(trail_, b);
    }
    bool on_literal(literal l) {
        spending_.on_literal(l);
        machines_.on_literal(l);
        for (const auto t : tasks_of_[l.variable()])
            mark(t);
        const auto& c = model_->choices[l.variable()];
        if (c.first != c.second) machines_.on_task(c.first);
        return propagate_clauses(trail_, clauses_, l) && arcs_.on_literal(trail_, l) &&
               transitive_.on_literal(trail_, l);
    }

    // Learning.

    bool learn() {
        const auto what = analysis_.learn(trail_, [&](std::uint32_t v) { order_.touch(v); });
        if (what.final) return possible_ = false;
        if constexpr (Witness::active()) check(what);
        order_.cool_down();
        go_back(what.level);
        if (what.clause.size() == 1) return trail_.assign(what.clause.front(), cause{}) || (possible_ = false);
        const auto c = clauses_.add(what.clause, true, what.distinct_levels);
        return trail_.assign(what.clause.front(), cause{cause::kind::clause, c, 0});
    }
    void check(const lesson& what) {
        for (const auto l : what.clause)
            if (trail_.known().holds(fact::of(l))) return;
        trail_.known().contradicted("a learned clause");
    }
    void go_back(std::uint32_t level) {
        trail_.go_back(level, [&](const auto& e, std::size_t position) {
            if (e.is_bound) return;
            const auto l = e.as_literal();
            side_[l.variable()] = l.negated() ? 0 : 1;
            order_.put_back(l.variable());
            if (position >= next_) return;
            spending_.on_forgotten(l);
            machines_.on_forgotten(l);
        });
        next_ = std::min(next_, trail_.size());
    }
    /// At the root, where no reason is needed any more.
    void forget() {
        std::vector<std::uint32_t> levels;
        for (const auto c : clauses_.learned())
            levels.push_back(clauses_.levels_of(c));
        auto middle = levels.begin() + static_cast<std::ptrdiff_t>(levels.size() / 2);
        std::nth_element(levels.begin(), middle, levels.end());
        const auto most = std::max<std::uint32_t>(*middle, 3);
        clauses_.forget_if([&](clause_index c) { return clauses_.levels_of(c) >= most; });
        most_learned_ += most_learned_ / 10;
    }

    // Branching.

    literal choose() {
        while (const auto v = order_.take()) {
            const literal l{v, false};
            if (!trail_.is_open(l)) continue;
            return side(v) ? l : !l;
        }
        return always;
    }
    bool side(std::uint32_t v) const {
        if (side_[v] >= 0) return side_[v] == 1;
        const auto& c = model_->choices[v];
        if (c.first == c.second) return false;
        return trail_.earliest(c.first) + trail_.latest(c.first) <= trail_.earliest(c.second) + trail_.latest(c.second);
    }
    /// Luby, Sinclair and Zuckerman (1993): 1 1 2 1 1 2 4 …
    [[nodiscard]] std::size_t restart_after() const {
        std::size_t i = restarts_ + 1;
        for (;;) {
            std::size_t k = 1;
            while ((std::size_t{1} << k) - 1 < i)
                ++k;
            if ((std::size_t{1} << k) - 1 == i) return restart_unit << (k - 1);
            i -= (std::size_t{1} << (k - 1)) - 1;
        }
    }

    static constexpr std::size_t restart_unit = 100;

    const model* model_;
    network network_;
    clause_store clauses_;
    trail_type trail_;
    arc_propagation<trail_type> arcs_;
    choice_propagation<trail_type> choices_;
    transitivity<trail_type> transitive_;
    spending<trail_type> spending_;
    disjunctive<trail_type> machines_;
    conflict_analysis<trail_type> analysis_;
    activity_order order_;
    std::vector<std::int8_t> side_;
    std::vector<bool> task_dirty_;
    std::vector<task_index> dirty_tasks_;
    std::vector<std::vector<task_index>> tasks_of_;
    std::vector<std::uint32_t> widened_;
    std::size_t next_ = 0;
    std::function<bool()> stop_{};
    bool interrupted_ = false;
    std::size_t conflicts_ = 0;
    std::size_t restarts_ = 0;
    std::size_t most_learned_ = 4000;
    bool possible_ = true;
};

} // namespace optpipe::exact
