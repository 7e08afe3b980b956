#pragma once

#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The clause learned from a conflict. All literals of the clause are choices. The clause implies its first literal at
/// `level`.
struct learned_clause {
    std::vector<literal> clause{};
    std::uint32_t level = 0;
    std::uint32_t distinct_levels = 0;
    /// Whether the conflict depends on no decision above the level of the assumptions. Then there is no clause, and
    /// `level` is 0 if the model is infeasible.
    bool final = false;
};

/// Learns the clause of the first unique implication point among the choices. Bounds are replaced by their reasons
/// until only choices are left. The explanation of a bound covers only the value that the conflict needs.
class conflict_analysis {
public:
    conflict_analysis(std::size_t variables, std::size_t bounds) : seen_(variables, false), wanted_(bounds, -1) {}

    /// `bump(variable)` is called for every variable involved. `assumed` is the level of the assumptions, or 0 if there
    /// are none.
    template <class Bump> learned_clause learn(const trail& trail, std::uint32_t assumed, Bump bump) {
        learned_clause result;
        conflict_ = trail.conflict();
        for (bool has_choice = false; !has_choice;) {
            level_ = 0;
            for (const auto& f : conflict_)
                level_ = std::max(level_, level_of(trail, f));
            if (level_ <= assumed) {
                result.final = true;
                result.level = level_;
                return result;
            }
            has_choice = resolve_at_level(trail, bump);
        }
        for (const auto l : clause_)
            seen_[l.variable()] = true;
        shorten(trail);
        for (const auto v : marked_)
            seen_[v] = false;
        marked_.clear();
        finish(trail, assumed, result);
        return result;
    }

private:
    static std::uint32_t level_of(const trail& trail, const fact& f) {
        const auto at = f.is_bound ? trail.position_of(f.code, f.value) : trail.position_of(f.as_literal());
        return at < 0 ? 0 : trail[static_cast<std::size_t>(at)].level;
    }

    /// Derives the clause of the conflict's highest level. Returns false if the conflict involves no choice of its
    /// highest level. Before returning false, replaces `conflict_` by lower-level facts that imply the conflict. A fact
    /// may be derived on a higher level than its reasons.
    template <class Bump> bool resolve_at_level(const trail& trail, Bump& bump) {
        clause_.assign(1, never);
        here_ = below_ = 0;
        flagged_.assign(trail.size(), false);
        value_.resize(trail.size());
        add(trail, conflict_, bump);
        if (resolve(trail, bump)) return true;
        conflict_.clear();
        for (std::size_t i = 1; i < clause_.size(); ++i)
            conflict_.push_back(fact::of(!clause_[i]));
        for (const auto v : marked_)
            seen_[v] = false;
        marked_.clear();
        return false;
    }
    template <class Bump> void add(const trail& trail, const std::vector<fact>& facts, Bump& bump) {
        for (const auto& f : facts)
            if (f.is_bound)
                add_bound(trail, f);
            else
                add_literal(trail, f.as_literal(), bump);
    }
    template <class Bump> void add_literal(const trail& trail, literal l, Bump& bump) {
        const auto at = trail.position_of(l);
        if (at < 0 || seen_[l.variable()]) return;
        const auto level = trail[static_cast<std::size_t>(at)].level;
        if (level == 0) return;
        seen_[l.variable()] = true;
        marked_.push_back(l.variable());
        bump(l.variable());
        if (level < level_) {
            clause_.push_back(!l);
            return;
        }
        flagged_[static_cast<std::size_t>(at)] = true;
        ++here_;
    }
    /// Adds a required value of a bound. If two values of a bound are required, only the higher value is kept.
    void add_bound(const trail& trail, const fact& f) {
        const auto at = trail.position_of(f.code, f.value);
        if (at < 0) return;
        const auto place = static_cast<std::size_t>(at);
        if (trail[place].level == 0) return;
        auto& wanted = wanted_[f.code];
        if (wanted >= 0) {
            const auto other = static_cast<std::size_t>(wanted);
            if (other >= place) {
                if (other == place) value_[place] = std::max(value_[place], f.value);
                return;
            }
            flagged_[other] = false;
            --(trail[other].level == level_ ? here_ : below_);
        }
        wanted = at;
        flagged_[place] = true;
        value_[place] = f.value;
        ++(trail[place].level == level_ ? here_ : below_);
    }

    /// Resolves until one choice of the highest level is left. Returns false if no choice of the highest level is left.
    template <class Bump> bool resolve(const trail& trail, Bump& bump) {
        bool found = false;
        for (std::size_t i = trail.size(); i-- > 0 && (!found || below_ > 0);) {
            if (!flagged_[i]) continue;
            const auto& e = trail[i];
            facts_.clear();
            if (e.is_bound) {
                wanted_[e.code] = -1;
                --(e.level == level_ ? here_ : below_);
                trail.explain(fact::of(e.code, value_[i]), e.why, facts_);
            } else if (here_ == 1) {
                clause_[0] = !e.as_literal();
                here_ = 0;
                found = true;
            } else {
                --here_;
                trail.explain(fact::of(e.as_literal()), e.why, facts_);
            }
            add(trail, facts_, bump);
        }
        return found;
    }

    /// Clause minimization: drops literals that the other literals imply (Sörensson and Biere 2009).
    void shorten(const trail& trail) {
        in_clause_.assign(seen_.size(), false);
        for (const auto l : clause_)
            in_clause_[l.variable()] = true;
        levels_.assign(trail.level() + 1, false);
        for (const auto l : clause_)
            levels_[trail[static_cast<std::size_t>(trail.position_of(l))].level] = true;
        implied_.resize(std::max(implied_.size(), trail.size()));
        std::size_t kept = 1;
        for (std::size_t i = 1; i < clause_.size(); ++i) {
            const auto at = static_cast<std::size_t>(trail.position_of(clause_[i]));
            if (is_decision(trail[at]) || !reasons_hold(trail, fact::of(!clause_[i]), at, most_depth))
                clause_[kept++] = clause_[i];
        }
        clause_.resize(kept);
        for (const auto at : asked_)
            implied_[at] = {};
        asked_.clear();
    }
    /// `what` is a fact that holds since entry `at` of the trail. Returns whether the literals of the clause imply all
    /// reasons of `what`.
    bool reasons_hold(const trail& trail, const fact& what, std::size_t at, std::size_t depth) {
        const auto begin = pending_.size();
        trail.explain(what, trail[at].why, pending_);
        const auto end = pending_.size();
        bool all = true;
        for (auto i = begin; i < end && all; ++i)
            all = is_implied(trail, fact{pending_[i]}, depth);
        pending_.resize(begin);
        return all;
    }
    bool is_implied(const trail& trail, const fact& f, std::size_t depth) {
        const auto position = f.is_bound ? trail.position_of(f.code, f.value) : trail.position_of(f.as_literal());
        if (position < 0) return true;
        const auto at = static_cast<std::size_t>(position);
        const auto& e = trail[at];
        if (e.level == 0 || (!f.is_bound && in_clause_[f.as_literal().variable()])) return true;
        if (is_decision(e) || !levels_[e.level] || depth == 0) return false;
        const auto& known = implied_[at];
        // An implied value of a bound also implies all lower values.
        if (known.is_known && known.holds && f.value <= known.value) return true;
        if (known.is_known && !known.holds && f.value >= known.value) return false;
        const bool holds = reasons_hold(trail, f, at, depth - 1);
        implied_[at] = {true, holds, f.value};
        asked_.push_back(at);
        return holds;
    }
    static bool is_decision(const trail::entry& e) { return e.why.how == reason::kind::decision; }

    /// Moves the literal of the second-highest level to the second position, for the watches.
    /// Each assumption counts as a level.
    void finish(const trail& trail, std::uint32_t assumed, learned_clause& result) {
        const auto level = [&](literal l) { return trail[static_cast<std::size_t>(trail.position_of(l))].level; };
        std::vector<std::uint32_t> levels;
        for (const auto l : clause_)
            levels.push_back(level(l));
        for (std::size_t i = 2; i < clause_.size(); ++i)
            if (level(clause_[i]) > level(clause_[1])) std::swap(clause_[1], clause_[i]);
        result.level = clause_.size() > 1 ? level(clause_[1]) : 0;
        std::sort(levels.begin(), levels.end());
        const auto above = std::upper_bound(levels.begin(), levels.end(), assumed);
        result.distinct_levels = static_cast<std::uint32_t>(std::unique(above, levels.end()) - levels.begin());
        result.clause = clause_;
    }

    struct outcome {
        bool is_known = false;
        bool holds = false;
        ticks value = 0;
    };
    /// Limit on the depth of the recursion, because the stack is finite. Not tuned.
    static constexpr std::size_t most_depth = 100;

    std::uint32_t level_ = 0;
    std::size_t here_ = 0;
    std::size_t below_ = 0;
    std::vector<bool> seen_;
    std::vector<std::uint32_t> marked_;
    std::vector<std::int32_t> wanted_;
    std::vector<bool> flagged_;
    std::vector<ticks> value_;
    std::vector<bool> in_clause_;
    std::vector<literal> clause_;
    std::vector<fact> conflict_;
    std::vector<fact> facts_;
    std::vector<bool> levels_;
    /// `implied_` has one answer per entry of the trail: implied by the clause, not implied, or unknown. `asked_` lists
    /// the entries whose answer is known.
    std::vector<outcome> implied_;
    std::vector<std::size_t> asked_;
    std::vector<fact> pending_;
};

} // namespace optpipe::cp
