#pragma once

#include "optpipe/planner/exact/literal.hpp"
#include "optpipe/planner/exact/model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::exact {

/// Budgets: what is spent for certain, and which expenses no longer fit together with all that they bring along. For
/// memory this is "the least number of backwards that must precede this forward under the limit, given what is
/// ordered".
template <class Trail> class spending {
public:
    explicit spending(const model& m)
        : model_{&m}, spent_(m.budgets.size(), 0), largest_(m.budgets.size(), 0), dirty_(m.budgets.size(), true),
          uses_(2 * m.variables()) {
        for (std::uint32_t b = 0; b < m.budgets.size(); ++b) {
            const auto& all = m.budgets[b].expenses;
            for (std::uint32_t e = 0; e < all.size(); ++e) {
                auto together = all[e].cost;
                for (const auto other : all[e].also)
                    together += all[other].cost;
                largest_[b] = std::max(largest_[b], together);
                uses_[all[e].spent.code()].push_back({b, all[e].cost});
            }
            uses_[m.budgets[b].guard.code()].push_back({b, 0});
            waiting_.push_back(b);
        }
    }

    void on_literal(literal l) {
        for (const auto& u : uses_[l.code()]) {
            spent_[u.budget] += u.cost;
            if (dirty_[u.budget]) continue;
            dirty_[u.budget] = true;
            waiting_.push_back(u.budget);
        }
    }
    void on_forgotten(literal l) {
        for (const auto& u : uses_[l.code()])
            spent_[u.budget] -= u.cost;
    }
    [[nodiscard]] bool has_work() const { return !waiting_.empty(); }
    void drop_work() {
        for (const auto b : waiting_)
            dirty_[b] = false;
        waiting_.clear();
    }
    /// Looks at one budget that changed.
    bool propagate_next(Trail& trail) {
        const auto b = waiting_.back();
        waiting_.pop_back();
        dirty_[b] = false;
        return propagate(trail, b);
    }

private:
    struct use {
        std::uint32_t budget;
        ticks cost;
    };

    bool propagate(Trail& trail, std::uint32_t b) {
        const auto& on = model_->budgets[b];
        if (trail.is_false(on.guard)) return true;
        const auto left = on.capacity - spent_[b];
        if (left < 0) {
            facts_.clear();
            add_spent(trail, on, on.capacity, nullptr);
            return trail.assign(!on.guard, facts_);
        }
        if (!trail.is_true(on.guard) || left >= largest_[b]) return true;
        for (std::uint32_t e = 0; e < on.expenses.size(); ++e)
            if (trail.is_open(on.expenses[e].spent) && together(trail, on, e) > left && !forbid(trail, on, e))
                return false;
        return true;
    }
    ticks together(const Trail& trail, const budget& on, std::uint32_t e) const {
        auto sum = on.expenses[e].cost;
        for (const auto other : on.expenses[e].also)
            if (trail.is_open(on.expenses[other].spent)) sum += on.expenses[other].cost;
        return sum;
    }
    bool forbid(Trail& trail, const budget& on, std::uint32_t e) {
        const auto& one = on.expenses[e];
        facts_.clear();
        if (on.guard != always) facts_.push_back(fact::of(on.guard));
        auto capacity = on.capacity - one.cost;
        for (const auto other : one.also)
            capacity -= on.expenses[other].cost;
        add_spent(trail, on, capacity, &one.also);
        return trail.assign(!one.spent, facts_);
    }
    /// Adds facts on what was spent, without those at `but`, that together exceed the capacity; the oldest ones, and no
    /// more than it takes.
    void add_spent(const Trail& trail, const budget& on, ticks capacity, const std::vector<std::uint32_t>* but) {
        spent_now_.clear();
        for (std::uint32_t e = 0; e < on.expenses.size(); ++e)
            if (trail.is_true(on.expenses[e].spent) && (!but || !std::binary_search(but->begin(), but->end(), e)))
                spent_now_.push_back(e);
        std::sort(spent_now_.begin(), spent_now_.end(), [&](std::uint32_t x, std::uint32_t y) {
            return trail.position_of(on.expenses[x].spent) < trail.position_of(on.expenses[y].spent);
        });
        ticks sum = 0;
        std::size_t taken = 0;
        while (sum <= capacity && taken < spent_now_.size())
            sum += on.expenses[spent_now_[taken++]].cost;
        for (std::size_t i = taken; i-- > 0;) {
            const auto& x = on.expenses[spent_now_[i]];
            if (sum - x.cost > capacity)
                sum -= x.cost;
            else
                facts_.push_back(fact::of(x.spent));
        }
    }

    const model* model_;
    std::vector<ticks> spent_;
    std::vector<ticks> largest_;
    std::vector<bool> dirty_;
    std::vector<std::vector<use>> uses_;
    std::vector<std::uint32_t> waiting_;
    std::vector<std::uint32_t> spent_now_;
    std::vector<fact> facts_;
};

} // namespace optpipe::exact
