#pragma once

#include "optpipe/planner/cp/clauses.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/network.hpp"
#include "optpipe/planner/cp/reason.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::cp {

/// The facts at the current node in the order of derivation, each with its reason. Bounds are explained only when
/// needed, by the weakest sufficient bounds, as in lazy clause generation (Ohrimenko, Stuckey and Codish 2009).
class trail {
public:
    struct entry {
        std::uint32_t code = 0;
        bool is_bound = false;
        std::uint32_t level = 0;
        /// `value` is the value of a bound, and `old_value` is its previous value. `before` is the entry that set the
        /// previous value, or -1.
        ticks value = 0;
        ticks old_value = 0;
        std::int32_t before = -1;
        reason why{};

        [[nodiscard]] literal as_literal() const { return literal::from_code(code); }
    };
    static constexpr ticks no_bound = std::numeric_limits<ticks>::min() / 4;

    trail(const model& m, const network& arcs, clause_store& clauses)
        : model_{&m}, network_{&arcs}, clauses_{&clauses}, values_(2 * m.variables(), 0), position_(m.variables(), -1),
          bounds_(2 * m.tasks.size(), no_bound), latest_entry_(2 * m.tasks.size(), -1) {
        values_[always.code()] = 1;
        values_[never.code()] = -1;
    }

    [[nodiscard]] bool is_true(literal l) const { return values_[l.code()] > 0; }
    [[nodiscard]] bool is_false(literal l) const { return values_[l.code()] < 0; }
    [[nodiscard]] bool is_open(literal l) const { return values_[l.code()] == 0; }
    [[nodiscard]] ticks bound(bound_index b) const { return bounds_[b]; }
    [[nodiscard]] ticks earliest(task_index t) const { return bounds_[earliest_of(t)]; }
    [[nodiscard]] ticks latest(task_index t) const { return -bounds_[latest_of(t)]; }
    [[nodiscard]] literal presence(task_index t) const { return model_->tasks[t].presence; }
    [[nodiscard]] bool is_present(task_index t) const { return is_true(presence(t)); }
    [[nodiscard]] bool is_absent(task_index t) const { return is_false(presence(t)); }

    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    /// Whether entry `i` gave bound `b` its current value.
    [[nodiscard]] bool is_latest(bound_index b, std::size_t i) const {
        return latest_entry_[b] == static_cast<std::int32_t>(i);
    }
    /// Whether the bound was raised on the current level.
    [[nodiscard]] bool is_raised_here(bound_index b) const {
        const auto at = latest_entry_[b];
        return at >= 0 && entries_[static_cast<std::size_t>(at)].level == level();
    }
    [[nodiscard]] const entry& operator[](std::size_t i) const { return entries_[i]; }
    [[nodiscard]] std::uint32_t level() const { return static_cast<std::uint32_t>(level_begin_.size()); }
    /// The entry that made the literal true, or -1 for `always`.
    [[nodiscard]] std::int32_t position_of(literal l) const { return position_[l.variable()]; }
    /// The first entry at which the bound has at least this value, or -1 if the initial value suffices.
    [[nodiscard]] std::int32_t position_of(bound_index b, ticks value) const {
        auto at = latest_entry_[b];
        while (at >= 0 && entries_[static_cast<std::size_t>(at)].old_value >= value)
            at = entries_[static_cast<std::size_t>(at)].before;
        return at;
    }

    void decide(literal l) {
        level_begin_.push_back(entries_.size());
        explanation_begin_.push_back(explanations_.size());
        push(l, {});
    }
    /// Makes all literals true on one new level. Returns false, without a conflict, if one is false.
    bool decide_all(std::span<const literal> some) {
        level_begin_.push_back(entries_.size());
        explanation_begin_.push_back(explanations_.size());
        for (const literal l : some) {
            if (is_false(l)) return false;
            if (is_open(l)) push(l, {});
        }
        return true;
    }
    /// Makes the literal true. Returns false if the literal is already false, with the contradictory facts in
    /// `conflict()`.
    bool assign(literal l, reason why) {
        if (is_true(l)) return true;
        if (is_false(l)) {
            conflict_.clear();
            explain(fact::of(l), why, conflict_);
            conflict_.push_back(fact::of(!l));
            return false;
        }
        push(l, why);
        return true;
    }
    bool assign(literal l, std::span<const fact> because) { return is_true(l) || assign(l, store(because)); }

    /// Raises the bound to at least `value`. Returns false if the new value contradicts the presence of the task (see
    /// `conflict`). Bounds of absent tasks stay as they are.
    bool raise(bound_index b, ticks value, reason why) {
        if (value <= bounds_[b] || is_absent(task_of(b))) return true;
        entries_.push_back({b, true, level(), value, bounds_[b], latest_entry_[b], why});
        latest_entry_[b] = static_cast<std::int32_t>(entries_.size() - 1);
        bounds_[b] = value;
        const auto other = bounds_[opposite(b)];
        if (value + other <= 0) return true;
        const fact both[] = {fact::of(b, 1 - other), fact::of(opposite(b), other)};
        return assign(!presence(task_of(b)), store(both));
    }
    bool raise(bound_index b, ticks value, std::span<const fact> because) {
        return value <= bounds_[b] || raise(b, value, store(because));
    }

    /// Records contradictory facts. Returns false.
    bool fail(std::span<const fact> facts) {
        conflict_.assign(facts.begin(), facts.end());
        return false;
    }
    [[nodiscard]] const std::vector<fact>& conflict() const { return conflict_; }

    /// Appends facts that hold and together imply `what`. `why` is the reason of `what`.
    void explain(const fact& what, const reason& why, std::vector<fact>& into) const {
        switch (why.how) {
        case reason::kind::decision: return;
        case reason::kind::clause:
            for (std::size_t i = 0; i < clauses_->size_of(why.data); ++i)
                if (const auto l = clauses_->at(why.data, i); l.code() != what.code) into.push_back(fact::of(!l));
            return;
        case reason::kind::arc: {
            const auto& a = (*network_)[why.data];
            for (const auto g : a.guards)
                if (g != always) into.push_back(fact::of(g));
            into.push_back(fact::of(a.source, what.value - a.gap));
            return;
        }
        case reason::kind::stored:
            into.insert(into.end(), explanations_.begin() + why.data, explanations_.begin() + why.data + why.size);
            return;
        }
    }

    /// Removes all entries above level `to`. Calls `unassigned(entry, position)` for each removed entry, in reverse
    /// order.
    template <class Unassigned> void backtrack(std::uint32_t to, Unassigned unassigned) {
        if (to >= level()) return;
        const auto begin = level_begin_[to];
        while (entries_.size() > begin) {
            const auto& last = entries_.back();
            unassigned(last, entries_.size() - 1);
            if (last.is_bound) {
                bounds_[last.code] = last.old_value;
                latest_entry_[last.code] = last.before;
            } else {
                values_[last.code] = values_[(!last.as_literal()).code()] = 0;
                position_[last.as_literal().variable()] = -1;
            }
            entries_.pop_back();
        }
        explanations_.resize(explanation_begin_[to]);
        level_begin_.resize(to);
        explanation_begin_.resize(to);
    }

private:
    void push(literal l, reason why) {
        values_[l.code()] = 1;
        values_[(!l).code()] = -1;
        position_[l.variable()] = static_cast<std::int32_t>(entries_.size());
        entries_.push_back({l.code(), false, level(), 0, 0, -1, why});
    }
    reason store(std::span<const fact> facts) {
        if (level() == 0) return {};
        const auto begin = static_cast<std::uint32_t>(explanations_.size());
        for (const auto& f : facts)
            if (f.is_bound || f.as_literal() != always) explanations_.push_back(f);
        return {reason::kind::stored, begin, static_cast<std::uint32_t>(explanations_.size() - begin)};
    }

    const model* model_;
    const network* network_;
    const clause_store* clauses_;
    std::vector<entry> entries_;
    std::vector<std::int8_t> values_;
    std::vector<std::int32_t> position_;
    std::vector<ticks> bounds_;
    std::vector<std::int32_t> latest_entry_;
    std::vector<fact> explanations_;
    std::vector<std::size_t> level_begin_;
    std::vector<std::size_t> explanation_begin_;
    std::vector<fact> conflict_;
};

} // namespace optpipe::cp
