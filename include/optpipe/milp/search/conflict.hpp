#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/propagator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// What a conflict teaches: a statement that holds everywhere, and where it starts to say something.
struct lesson {
    /// The literal to be implied first, then one of the level to go back to. Empty: the problem is refuted.
    std::vector<literal> statement;
    std::uint32_t back_to = 0;
    std::uint32_t levels = 0;
};

/// Conflict analysis to the first unique implication point (Marques-Silva and Sakallah, 1999), over bounds instead of
/// Boolean variables: a linear row explains a bound by the weakest bounds of its other columns that suffice
/// (Achterberg, 2007). Bounds of continuous columns are always traced back to what implied them.
class conflict_analysis {
public:
    explicit conflict_analysis(const problem& p) : seen_(p.columns(), 0) {}

    /// Columns of whole values that took part; until the next analysis.
    [[nodiscard]] std::span<const std::uint32_t> involved() const { return involved_; }

    /// `conflict` are literals that hold and exclude each other.
    lesson analyze(propagator& engine, std::span<const literal> conflict) {
        auto& d = engine.bounds();
        marks_.assign(static_cast<std::size_t>(d.moves()), {});
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
            at_top_ += d.at(i).level == top_level_ ? 1 : 0;
        fresh_.clear();
        point_found_ = false;
        for (auto i = d.moves() - 1; open_ > 0; --i)
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

    /// Marks the first move that makes the literal true.
    void require(const domains& d, literal l) {
        const auto i = d.first_move_of(l);
        if (i == no_move || d.at(i).level == 0) return;
        auto& m = marks_[static_cast<std::size_t>(i)];
        if (m.set) {
            m.needed = std::max(m.needed, l.value);
            return;
        }
        m = {true, l.value};
        ++open_;
        fresh_.push_back(i);
    }

    void step(propagator& engine, move_index i) {
        auto& d = engine.bounds();
        const auto m = d.at(i);
        const auto marked = marks_[static_cast<std::size_t>(i)];
        d.hide(i);
        if (!marked.set) return;
        --open_;
        const literal needed{m.bound, marked.needed};
        const bool whole = d.is_whole(column_of(m.bound));
        if (whole) note(column_of(m.bound));
        const bool top = m.level == top_level_;
        if (top) --at_top_;
        const bool is_point = top && whole && at_top_ == 0 && !point_found_;
        if (is_point || (m.why.from == reason::source::none)) {
            point_found_ = point_found_ || top;
            statement_.push_back({negation(needed), m.level});
            return;
        }
        explanation_.clear();
        engine.explain(needed, m.why, explanation_);
        if (whole && !top && !follows(d)) {
            statement_.push_back({negation(needed), m.level});
            return;
        }
        for (const auto& l : explanation_)
            require(d, l);
        for (const auto f : fresh_)
            at_top_ += d.at(f).level == top_level_ ? 1 : 0;
        fresh_.clear();
    }
    /// Whether what explains a literal is in the statement anyway.
    [[nodiscard]] bool follows(const domains& d) const {
        for (const auto& l : explanation_) {
            const auto i = d.first_move_of(l);
            if (i == no_move || d.at(i).level == 0) continue;
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

    lesson conclude() {
        lesson result;
        merge();
        std::sort(statement_.begin(), statement_.end(), [](const kept& a, const kept& b) { return a.level > b.level; });
        std::uint32_t previous = 0;
        for (const auto& k : statement_) {
            result.statement.push_back(k.statement);
            if (k.level != previous) ++result.levels;
            previous = k.level;
        }
        if (statement_.size() > 1) result.back_to = statement_[1].level;
        return result;
    }
    /// Of two literals over one bound the weaker statement says nothing more.
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
    std::vector<move_index> fresh_;
    std::vector<unsigned char> seen_;
    std::vector<std::uint32_t> involved_;
    std::vector<kept> statement_;
    std::vector<literal> explanation_;
    std::size_t open_ = 0;
    std::size_t at_top_ = 0;
    std::uint32_t top_level_ = 0;
    bool point_found_ = false;
};

} // namespace optpipe::milp::search
