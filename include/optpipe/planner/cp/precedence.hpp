#pragma once

#include "optpipe/planner/cp/clauses.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/network.hpp"
#include "optpipe/planner/cp/reason.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Unit propagation with two watched literals. false: a conflict.
template <class Trail> bool propagate_clauses(Trail& trail, clause_store& clauses, literal now_true) {
    auto& watchers = clauses.watching(now_true);
    const literal lost = !now_true;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < watchers.size(); ++i) {
        const auto w = watchers[i];
        if (trail.is_true(w.blocker)) {
            watchers[kept++] = w;
            continue;
        }
        const auto c = w.clause;
        if (clauses.at(c, 0) == lost) clauses.exchange(c, 0, 1);
        const literal first = clauses.at(c, 0);
        bool moved = false;
        for (std::size_t k = 2; k < clauses.size_of(c) && !trail.is_true(first) && !moved; ++k)
            if (!trail.is_false(clauses.at(c, k))) {
                clauses.exchange(c, 1, k);
                clauses.watching(!clauses.at(c, 1)).push_back({c, first});
                moved = true;
            }
        if (moved) continue;
        watchers[kept++] = {c, first};
        if (trail.assign(first, {reason::kind::clause, c, 0})) continue;
        while (++i < watchers.size())
            watchers[kept++] = watchers[i];
        watchers.resize(kept);
        return false;
    }
    watchers.resize(kept);
    return true;
}

/// Propagates bounds along the arcs.
template <class Trail> class arc_propagation {
public:
    explicit arc_propagation(const network& arcs) : network_{&arcs} {}

    bool on_bound(Trail& trail, bound_index b) const {
        for (const auto i : network_->from(b))
            if (!propagate_arc(trail, i)) return false;
        return true;
    }
    bool on_literal(Trail& trail, literal l) const {
        for (const auto i : network_->guarded_by(l))
            if (!propagate_arc(trail, i)) return false;
        return true;
    }

private:
    bool propagate_arc(Trail& trail, std::uint32_t i) const {
        const auto& a = (*network_)[i];
        const auto value = trail.bound(a.source) + a.gap;
        if (value <= trail.bound(a.target)) return true;
        if (!trail.is_true(a.guards[0]) || !trail.is_true(a.guards[1])) return true;
        if (trail.is_absent(task_of(a.source))) return true;
        return trail.raise(a.target, value, reason{reason::kind::arc, i, 0});
    }

    const network* network_;
};

/// Decides choices that the bounds leave only one value.
template <class Trail> class choice_propagation {
public:
    explicit choice_propagation(const model& m) : model_{&m}, of_task_(m.tasks.size()) {
        for (std::uint32_t v = 1; v < m.variables(); ++v) {
            const auto& c = m.choices[v];
            if (c.first == c.second) continue;
            of_task_[c.first].push_back(v);
            of_task_[c.second].push_back(v);
        }
    }

    bool on_task(Trail& trail, task_index t) const {
        for (const auto v : of_task_[t])
            if (trail.is_open(literal{v, false}) && !decide(trail, v)) return false;
        return true;
    }

private:
    /// start(b) ≥ start(a) + gap is infeasible if it is for the earliest a and the latest b.
    static bool is_infeasible(const Trail& trail, task_index a, task_index b, ticks gap) {
        return trail.earliest(a) + gap > trail.latest(b);
    }
    static std::array<fact, 2> explanation(const Trail& trail, task_index a, task_index b, ticks gap) {
        const auto late = trail.latest(b);
        return {fact::of(earliest_of(a), late + 1 - gap), fact::of(latest_of(b), -late)};
    }
    bool decide(Trail& trail, std::uint32_t v) const {
        const auto& c = model_->choices[v];
        const literal l{v, false};
        if (is_infeasible(trail, c.first, c.second, c.gap)) {
            return trail.assign(!l, explanation(trail, c.first, c.second, c.gap));
        }
        // A true choice implies that both are present, so that has to hold already.
        if (!trail.is_present(c.first) || !trail.is_present(c.second)) return true;
        if (!is_infeasible(trail, c.second, c.first, c.back)) return true;
        const auto bounds = explanation(trail, c.second, c.first, c.back);
        const fact all[] = {bounds[0], bounds[1], fact::of(trail.presence(c.first)),
                            fact::of(trail.presence(c.second))};
        return trail.assign(l, all);
    }

    const model* model_;
    std::vector<std::vector<std::uint32_t>> of_task_;
};

/// i before j and j before k: i before k, on every machine.
template <class Trail> class transitivity {
public:
    explicit transitivity(const model& m) : model_{&m}, places_(m.variables()) {
        for (std::uint32_t k = 0; k < m.machines.size(); ++k) {
            const auto& on = m.machines[k];
            const auto n = static_cast<std::uint32_t>(on.tasks.size());
            for (std::uint32_t i = 0; i < n; ++i)
                for (std::uint32_t j = 0; j < n; ++j)
                    if (i != j)
                        if (const auto l = on.order(i, j); !l.negated() && l != always)
                            places_[l.variable()].push_back({k, i, j});
        }
    }

    bool on_literal(Trail& trail, literal l) const {
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

    bool close(Trail& trail, const machine& on, std::size_t i, std::size_t j) const {
        if (!trail.is_present(on.tasks[i]) || !trail.is_present(on.tasks[j])) return true;
        for (std::size_t k = 0; k < on.tasks.size(); ++k) {
            if (k == i || k == j || !trail.is_present(on.tasks[k])) continue;
            if (trail.is_true(on.order(j, k)) && !conclude(trail, on, {i, j, k})) return false;
            if (trail.is_true(on.order(k, i)) && !conclude(trail, on, {k, i, j})) return false;
        }
        return true;
    }
    bool conclude(Trail& trail, const machine& on, const std::array<std::size_t, 3>& chain) const {
        const auto [a, b, c] = chain;
        const auto result = on.order(a, c);
        if (trail.is_true(result)) return true;
        const fact facts[] = {fact::of(on.order(a, b)), fact::of(on.order(b, c)), fact::of(trail.presence(on.tasks[a])),
                              fact::of(trail.presence(on.tasks[b])), fact::of(trail.presence(on.tasks[c]))};
        return trail.assign(result, facts);
    }

    const model* model_;
    std::vector<std::vector<place>> places_;
};

} // namespace optpipe::cp
