#pragma once

#include "optpipe/core/jagged_array.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::cp {

/// Propagates knapsack constraints. Sums the weights of the chosen terms. A term is excluded if the capacity is too
/// small for the term and all terms that it implies. Example: a forward that doesn't fit in memory waits for backwards.
class knapsack_propagation {
public:
    explicit knapsack_propagation(const model& m)
        : model_{&m}, used_(m.knapsacks.size(), 0), largest_(m.knapsacks.size(), 0), dirty_(m.knapsacks.size(), true) {
        std::vector<std::vector<use>> uses(2 * m.variables());
        for (std::uint32_t b = 0; b < m.knapsacks.size(); ++b) {
            const auto& all = m.knapsacks[b].terms;
            for (std::uint32_t e = 0; e < all.size(); ++e) {
                auto together = all[e].weight;
                for (const auto other : all[e].implied_terms)
                    together += all[other].weight;
                largest_[b] = std::max(largest_[b], together);
                uses[all[e].chosen.code()].push_back({b, all[e].weight});
            }
            uses[m.knapsacks[b].guard.code()].push_back({b, 0});
            waiting_.push_back(b);
        }
        uses_ = jagged_array{uses};
    }

    void on_literal(literal l) {
        for (const auto& u : uses_[l.code()]) {
            used_[u.knapsack] += u.weight;
            if (dirty_[u.knapsack]) continue;
            dirty_[u.knapsack] = true;
            waiting_.push_back(u.knapsack);
        }
    }
    void on_unassigned(literal l) {
        for (const auto& u : uses_[l.code()])
            used_[u.knapsack] -= u.weight;
    }
    [[nodiscard]] bool has_work() const { return !waiting_.empty(); }
    void drop_work() {
        for (const auto b : waiting_)
            dirty_[b] = false;
        waiting_.clear();
    }
    /// Propagates one changed constraint.
    bool propagate_next(trail& trail) {
        const auto b = waiting_.back();
        waiting_.pop_back();
        dirty_[b] = false;
        return propagate(trail, b);
    }

private:
    struct use {
        std::uint32_t knapsack;
        ticks weight;
    };

    bool propagate(trail& trail, std::uint32_t b) {
        const auto& on = model_->knapsacks[b];
        if (trail.is_false(on.guard)) return true;
        const auto left = on.capacity - used_[b];
        if (left < 0) {
            facts_.clear();
            add_used(trail, on, on.capacity, nullptr);
            return trail.assign(!on.guard, facts_);
        }
        if (!trail.is_true(on.guard) || left >= largest_[b]) return true;
        for (std::uint32_t e = 0; e < on.terms.size(); ++e)
            if (trail.is_open(on.terms[e].chosen) && together(trail, on, e) > left && !forbid(trail, on, e))
                return false;
        return true;
    }
    ticks together(const trail& trail, const knapsack_constraint& on, std::uint32_t e) const {
        auto sum = on.terms[e].weight;
        for (const auto other : on.terms[e].implied_terms)
            if (trail.is_open(on.terms[other].chosen)) sum += on.terms[other].weight;
        return sum;
    }
    bool forbid(trail& trail, const knapsack_constraint& on, std::uint32_t e) {
        const auto& one = on.terms[e];
        facts_.clear();
        if (on.guard != always) facts_.push_back(fact::of(on.guard));
        auto capacity = on.capacity - one.weight;
        for (const auto other : one.implied_terms)
            capacity -= on.terms[other].weight;
        add_used(trail, on, capacity, &one.implied_terms);
        return trail.assign(!one.chosen, facts_);
    }
    /// Adds facts that together show that the capacity is exceeded. Each fact says that a term is chosen. Terms in
    /// `but` aren't used. Takes the oldest facts, and no more than necessary.
    void add_used(const trail& trail, const knapsack_constraint& on, ticks capacity,
                  const std::vector<std::uint32_t>* but) {
        used_now_.clear();
        for (std::uint32_t e = 0; e < on.terms.size(); ++e)
            if (trail.is_true(on.terms[e].chosen) && (!but || !std::binary_search(but->begin(), but->end(), e)))
                used_now_.push_back(e);
        std::sort(used_now_.begin(), used_now_.end(), [&](std::uint32_t x, std::uint32_t y) {
            return trail.position_of(on.terms[x].chosen) < trail.position_of(on.terms[y].chosen);
        });
        ticks sum = 0;
        std::size_t taken = 0;
        while (sum <= capacity && taken < used_now_.size())
            sum += on.terms[used_now_[taken++]].weight;
        for (std::size_t i = taken; i-- > 0;) {
            const auto& x = on.terms[used_now_[i]];
            if (sum - x.weight > capacity)
                sum -= x.weight;
            else
                facts_.push_back(fact::of(x.chosen));
        }
    }

    const model* model_;
    std::vector<ticks> used_;
    std::vector<ticks> largest_;
    std::vector<bool> dirty_;
    jagged_array<use> uses_;
    std::vector<std::uint32_t> waiting_;
    std::vector<std::uint32_t> used_now_;
    std::vector<fact> facts_;
};

} // namespace optpipe::cp
