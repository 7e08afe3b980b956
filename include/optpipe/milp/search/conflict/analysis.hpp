#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/propagation/propagator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// A globally valid clause, and the level at which the clause becomes unit.
struct learned_clause {
    /// The literals of the clause. After backtracking, the first literal is implied. The second literal belongs to the
    /// level to which the search backtracks. If the clause is empty, the problem is infeasible.
    std::vector<literal> literals;
    std::uint32_t back_to = 0;
    std::uint32_t levels = 0;
};

/// Conflict analysis to the first unique implication point (Marques-Silva and Sakallah, 1999), on bounds. A row
/// explains a bound by the weakest sufficient bounds of its other columns (Achterberg, 2007). Literals on continuous
/// columns are always replaced by the literals that implied them.
class conflict_analysis {
public:
    explicit conflict_analysis(const problem& p) : seen_(p.columns(), 0) {}

    /// The integral columns involved in the last analysis.
    [[nodiscard]] std::span<const std::uint32_t> involved() const { return involved_; }

    /// The literals in `conflict` hold, but exclude each other.
    learned_clause analyze(propagator& engine, std::span<const literal> conflict) {
        auto& d = engine.bounds();
        marks_.assign(static_cast<std::size_t>(d.changes()), {});
        open_ = 0;
        involved_.clear();
        statement_.clear();
        for (const auto& l : conflict)
            require(d, l);
        top_level_ = 0;
        for (const auto i : fresh_)
            top_level_ = std::max(top_level_, d.at(i).level);
        at_top_ = 0;
        for (const auto i : fresh_)
            if (d.at(i).level == top_level_) ++at_top_;
        fresh_.clear();
        uip_found_ = false;
        for (auto i = d.changes() - 1; open_ > 0; --i)
            step(engine, i);
        d.unhide();
        for (const auto j : involved_)
            seen_[j] = 0;
        return conclude();
    }

    [[nodiscard]] std::size_t bytes() const {
        return bytes_of(marks_, fresh_, seen_, involved_, statement_, explanation_);
    }

private:
    struct mark {
        bool set = false;
        double needed = 0.0;
    };
    struct kept {
        literal statement;
        std::uint32_t level;
    };

    /// Marks the first bound change that makes the literal true.
    void require(const domains& d, literal l) {
        const auto i = d.first_change_of(l);
        if (i == not_on_trail || d.at(i).level == 0) return;
        auto& m = marks_[static_cast<std::size_t>(i)];
        if (m.set) {
            m.needed = std::max(m.needed, l.value);
            return;
        }
        m = {true, l.value};
        ++open_;
        fresh_.push_back(i);
    }

    void step(propagator& engine, trail_position i) {
        auto& d = engine.bounds();
        const auto m = d.at(i);
        const auto marked = marks_[static_cast<std::size_t>(i)];
        d.hide(i);
        if (!marked.set) return;
        --open_;
        const literal needed{m.bound, marked.needed};
        const bool integral = d.is_integral(column_of(m.bound));
        if (integral) note(column_of(m.bound));
        const bool top = m.level == top_level_;
        if (top) --at_top_;
        const bool is_uip = top && integral && at_top_ == 0 && !uip_found_;
        if (is_uip || (m.why.from == reason::source::none)) {
            uip_found_ = uip_found_ || top;
            statement_.push_back({negation(needed), m.level});
            return;
        }
        explanation_.clear();
        engine.explain(needed, m.why, explanation_);
        if (integral && !top && !follows(d)) {
            statement_.push_back({negation(needed), m.level});
            return;
        }
        for (const auto& l : explanation_)
            require(d, l);
        for (const auto f : fresh_)
            if (d.at(f).level == top_level_) ++at_top_;
        fresh_.clear();
    }
    /// Whether the explained literal is redundant: its whole explanation is marked.
    [[nodiscard]] bool follows(const domains& d) const {
        for (const auto& l : explanation_) {
            const auto i = d.first_change_of(l);
            if (i == not_on_trail || d.at(i).level == 0) continue;
            const auto& m = marks_[static_cast<std::size_t>(i)];
            if (!m.set || m.needed < l.value) return false;
        }
        return true;
    }
    void note(std::size_t column) {
        if (seen_[column] != 0) return;
        seen_[column] = 1;
        involved_.push_back(static_cast<std::uint32_t>(column));
    }

    learned_clause conclude() {
        learned_clause result;
        merge();
        std::sort(statement_.begin(), statement_.end(), [](const kept& a, const kept& b) { return a.level > b.level; });
        std::uint32_t previous = 0;
        for (const auto& k : statement_) {
            result.literals.push_back(k.statement);
            if (k.level != previous) ++result.levels;
            previous = k.level;
        }
        if (statement_.size() > 1) result.back_to = statement_[1].level;
        return result;
    }
    /// Keeps only one of several literals on the same bound.
    void merge() {
        std::stable_sort(statement_.begin(), statement_.end(), [](const kept& a, const kept& b) {
            return a.statement.bound != b.statement.bound ? a.statement.bound < b.statement.bound
                                                          : a.statement.value < b.statement.value;
        });
        std::size_t count = 0;
        for (const auto& k : statement_)
            if (count == 0 || statement_[count - 1].statement.bound != k.statement.bound)
                statement_[count++] = k;
            else
                statement_[count - 1].level = std::max(statement_[count - 1].level, k.level);
        statement_.resize(count);
    }

    std::vector<mark> marks_;
    std::vector<trail_position> fresh_;
    std::vector<unsigned char> seen_;
    std::vector<std::uint32_t> involved_;
    std::vector<kept> statement_;
    std::vector<literal> explanation_;
    std::size_t open_ = 0;
    std::size_t at_top_ = 0;
    std::uint32_t top_level_ = 0;
    bool uip_found_ = false;
};

} // namespace optpipe::milp::search
