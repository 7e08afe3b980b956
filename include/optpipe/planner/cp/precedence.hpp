#pragma once

#include "optpipe/core/jagged_array.hpp"
#include "optpipe/planner/cp/clauses.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/network.hpp"
#include "optpipe/planner/cp/reason.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Handles a watched literal, `lost`, that became false. The return value depends on the clause's other literals:
/// - If the other watched literal is true, returns that literal.
/// - If an unwatched literal isn't false, watches this literal in place of `lost`, and returns `never`.
/// - Otherwise returns the other watched literal, which must become true.
[[nodiscard]] inline literal watch_another(const trail& trail, clause_store& clauses, clause_index c, literal lost) {
    if (clauses.at(c, 0) == lost) clauses.exchange(c, 0, 1);
    const literal first = clauses.at(c, 0);
    if (trail.is_true(first)) return first;
    for (std::size_t k = 2; k < clauses.size_of(c); ++k)
        if (!trail.is_false(clauses.at(c, k))) {
            clauses.exchange(c, 1, k);
            clauses.watching(!clauses.at(c, 1)).emplace_back(c, false, first);
            return never;
        }
    return first;
}

/// Unit propagation with two watched literals. Returns false after a conflict.
inline bool propagate_clauses(trail& trail, clause_store& clauses, literal now_true) {
    auto& watchers = clauses.watching(now_true);
    const literal lost = !now_true;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < watchers.size(); ++i) {
        const auto w = watchers[i];
        if (trail.is_true(w.blocker())) {
            watchers[kept++] = w;
            continue;
        }
        const literal last = w.is_binary() ? w.blocker() : watch_another(trail, clauses, w.clause(), lost);
        if (last == never) continue;
        watchers[kept++] = {w.clause(), w.is_binary(), last};
        if (trail.assign(last, {reason::kind::clause, w.clause(), 0})) continue;
        while (++i < watchers.size())
            watchers[kept++] = watchers[i];
        watchers.erase(watchers.begin() + static_cast<std::ptrdiff_t>(kept), watchers.end());
        return false;
    }
    watchers.erase(watchers.begin() + static_cast<std::ptrdiff_t>(kept), watchers.end());
    return true;
}

/// Propagates bounds along the arcs, and decides choices with only one possible value.
///
/// The arcs of a cycle with a positive sum of gaps can't all hold. Bounds would rise around the cycle until a window is
/// empty. The propagation looks for a cycle when a bound is raised again on the same level. The conflict is learned
/// from the arcs of the cycle, without any bound (difference logic, Cotton and Maler 2006).
class arc_propagation {
public:
    arc_propagation(const model& m, const network& arcs) : network_{&arcs}, visits_(2 * m.tasks.size()) {}

    bool on_bound(trail& trail, bound_index b) {
        const auto differences = network_->differences_from(b);
        for (auto i = differences.first; i < differences.last; ++i)
            if (!propagate_arc(trail, i)) return false;
        return decide_choices(trail, b);
    }
    bool on_literal(trail& trail, literal l) {
        for (const auto i : network_->guarded_by(l))
            if (!propagate_arc(trail, i)) return false;
        return true;
    }
    /// Propagates the bounds of a task that is now known to be present.
    bool on_presence(trail& trail, task_index t) {
        return decide_choices(trail, earliest_of(t)) && decide_choices(trail, latest_of(t));
    }
    /// Whether choices wait to be decided.
    [[nodiscard]] bool has_work() const { return !refuted_.empty(); }
    void drop_work() { refuted_.clear(); }
    bool propagate_next(trail& trail) {
        const auto i = refuted_.back();
        refuted_.pop_back();
        return refute(trail, (*network_)[i]);
    }

private:
    /// The latest visit of a bound by a search for a cycle. `walk` is the number of the search. `place` and `value` are
    /// the position and the value of the bound on the path of this search.
    struct visit {
        std::uint64_t walk = 0;
        std::ptrdiff_t place = 0;
        ticks value = 0;
    };

    bool propagate_arc(trail& trail, std::uint32_t i) {
        const auto& a = (*network_)[i];
        const auto value = trail.bound(a.source) + a.gap;
        if (value <= trail.bound(a.target)) return true;
        if (!trail.is_true(a.guards[0]) || !trail.is_true(a.guards[1])) return true;
        if (trail.is_absent(task_of(a.source)) || trail.is_absent(task_of(a.target))) return true;
        if (trail.is_raised_here(a.target) && closes_cycle(trail, i, value)) return forbid_cycle(trail);
        return trail.raise(a.target, value, reason{reason::kind::arc, i, 0});
    }
    /// Arc `i` requires that the bound of its target is at least `value`. Returns whether the requirement comes from a
    /// cycle of arcs with a positive sum. If so, `path_` lists the arcs of the cycle in reverse order.
    bool closes_cycle(const trail& trail, std::uint32_t i, ticks value) {
        path_.clear();
        ++walk_;
        for (;;) {
            const auto& a = (*network_)[i];
            visits_[a.target] = {walk_, static_cast<std::ptrdiff_t>(path_.size()), value};
            path_.push_back(i);
            value -= a.gap;
            if (const auto& before = visits_[a.source]; before.walk == walk_) {
                path_.erase(path_.begin(), path_.begin() + before.place);
                return before.value > value;
            }
            const auto at = trail.position_of(a.source, value);
            if (at < 0) return false;
            const auto& why = trail[static_cast<std::size_t>(at)].why;
            if (why.how != reason::kind::arc) return false;
            i = why.data;
        }
    }
    /// Concludes that a guard of the cycle is false, or that the tasks of the cycle are absent. The tasks of the cycle
    /// are all present or all absent. The source of an arc is present if its target is, or if a guard of the arc
    /// requires it.
    bool forbid_cycle(trail& trail) {
        facts_.clear();
        auto present = trail.presence(task_of((*network_)[path_.back()].target));
        for (const auto i : path_) {
            const auto& a = (*network_)[i];
            for (const auto g : a.guards)
                facts_.push_back(fact::of(g));
            if (trail.presence(task_of(a.target)) == always) present = always;
        }
        return trail.assign(!present, facts_);
    }
    bool decide_choices(trail& trail, bound_index b) {
        const auto arcs = network_->choices_from(b);
        for (auto i = arcs.first; i < arcs.last; ++i) {
            const auto& a = (*network_)[i];
            const auto value = trail.bound(b) + a.gap;
            if (value <= trail.bound(a.target)) continue;
            if (trail.is_true(a.guards[0])) {
                if (!propagate_arc(trail, i)) return false;
            } else if (value + trail.bound(opposite(a.target)) > 0 && trail.is_open(a.guards[0])) {
                refuted_.push_back(i);
            }
        }
        return true;
    }
    /// Decides against the order of `a`'s guard, which contradicts the bounds. A choice is made true only if both tasks
    /// are present: a true choice implies their presence.
    bool refute(trail& trail, const arc& a) const {
        const auto other = trail.bound(opposite(a.target));
        // If the search was interrupted and has backtracked since, the contradiction may be gone.
        if (trail.bound(a.source) + a.gap + other <= 0) return true;
        const fact bounds[] = {fact::of(a.source, 1 - other - a.gap), fact::of(opposite(a.target), other)};
        const auto order = a.guards[0];
        if (!order.negated()) return trail.assign(!order, bounds);
        const auto from = task_of(a.source);
        const auto to = task_of(a.target);
        if (!trail.is_present(from) || !trail.is_present(to)) return true;
        const fact all[] = {bounds[0], bounds[1], fact::of(trail.presence(from)), fact::of(trail.presence(to))};
        return trail.assign(!order, all);
    }

    const network* network_;
    /// Arcs that contradict the bounds.
    std::vector<std::uint32_t> refuted_;
    // Used in the search for a cycle. `path_` lists the arcs that the search has followed back from a bound. `visits_`
    // has the latest visit of each bound.
    std::vector<std::uint32_t> path_;
    std::vector<visit> visits_;
    std::uint64_t walk_ = 0;
    std::vector<fact> facts_;
};

/// Propagates transitivity on every machine: if i is before j and j is before k, i is before k.
class transitivity {
public:
    explicit transitivity(const model& m) : model_{&m} {
        std::vector<std::vector<place>> places(m.variables());
        for (std::uint32_t k = 0; k < m.machines.size(); ++k) {
            const auto& on = m.machines[k];
            const auto n = static_cast<std::uint32_t>(on.tasks.size());
            for (std::uint32_t i = 0; i < n; ++i)
                for (std::uint32_t j = 0; j < n; ++j)
                    if (i != j)
                        if (const auto l = on.order(i, j); !l.negated() && l != always)
                            places[l.variable()].push_back({k, i, j});
        }
        places_ = jagged_array{places};
    }

    bool on_literal(trail& trail, literal l) const {
        for (const auto& at : places_[l.variable()])
            if (!(l.negated() ? close(trail, model_->machines[at.machine], at.second, at.first)
                              : close(trail, model_->machines[at.machine], at.first, at.second)))
                return false;
        return true;
    }

private:
    struct place {
        std::uint32_t machine;
        std::uint32_t first;
        std::uint32_t second;
    };

    bool close(trail& trail, const machine& on, std::size_t i, std::size_t j) const {
        if (!trail.is_present(on.tasks[i]) || !trail.is_present(on.tasks[j])) return true;
        for (std::size_t k = 0; k < on.tasks.size(); ++k) {
            if (k == i || k == j || !trail.is_present(on.tasks[k])) continue;
            if (trail.is_true(on.order(j, k)) && !conclude(trail, on, {i, j, k})) return false;
            if (trail.is_true(on.order(k, i)) && !conclude(trail, on, {k, i, j})) return false;
        }
        return true;
    }
    bool conclude(trail& trail, const machine& on, const std::array<std::size_t, 3>& chain) const {
        const auto [a, b, c] = chain;
        const auto result = on.order(a, c);
        if (trail.is_true(result)) return true;
        const fact facts[] = {fact::of(on.order(a, b)), fact::of(on.order(b, c)), fact::of(trail.presence(on.tasks[a])),
                              fact::of(trail.presence(on.tasks[b])), fact::of(trail.presence(on.tasks[c]))};
        return trail.assign(result, facts);
    }

    const model* model_;
    jagged_array<place> places_;
};

} // namespace optpipe::cp
