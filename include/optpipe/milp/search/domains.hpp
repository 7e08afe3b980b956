#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/literal.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Who moved a bound: nobody (a decision, or what holds everywhere), a row, a disjunction, or literals kept in a list.
struct reason {
    enum class source : unsigned char { none, row, disjunction, list };
    source from = source::none;
    std::uint32_t which = 0;
};

/// Position on the trail; `no_move` stands before the first.
using move_index = std::int32_t;
inline constexpr move_index no_move = -1;

/// One rise of a bound.
struct move {
    bound_index bound = 0;
    std::uint32_t level = 0;
    double before = 0.0;
    double after = 0.0;
    move_index previous = no_move; ///< of the same bound
    reason why;
};

/// The bounds of all columns, and how they came to be: a trail of moves in levels, one per decision, that can be taken
/// back. Level 0 holds everywhere.
class domains {
public:
    explicit domains(const problem& p)
        : values_(2 * p.columns()), last_(2 * p.columns(), no_move), whole_(p.columns()) {
        for (std::size_t j = 0; j < p.columns(); ++j) {
            values_[lower_of(j)] = p.lower[j];
            values_[upper_of(j)] = -p.upper[j];
            whole_[j] = p.is_whole(j) ? 1 : 0;
        }
        root_ = values_;
    }

    [[nodiscard]] std::size_t columns() const { return whole_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(values_, root_, last_, whole_, trail_, level_starts_); }
    [[nodiscard]] double operator[](bound_index b) const { return values_[b]; }
    [[nodiscard]] double lower(std::size_t j) const { return values_[lower_of(j)]; }
    [[nodiscard]] double upper(std::size_t j) const { return -values_[upper_of(j)]; }
    [[nodiscard]] bool is_whole(std::size_t j) const { return whole_[j] != 0; }
    [[nodiscard]] bool is_fixed(std::size_t j) const { return lower(j) >= upper(j); }
    [[nodiscard]] double width(std::size_t j) const { return upper(j) - lower(j); }
    /// The bound at level 0.
    [[nodiscard]] double at_root(bound_index b) const { return root_[b]; }

    [[nodiscard]] bool is_true(literal l) const { return values_[l.bound] >= l.value; }
    /// Only for columns that take whole values.
    [[nodiscard]] bool is_false(literal l) const { return -values_[opposite(l.bound)] < l.value; }

    [[nodiscard]] std::uint32_t level() const { return static_cast<std::uint32_t>(level_starts_.size()); }
    [[nodiscard]] move_index moves() const { return static_cast<move_index>(trail_.size()); }
    [[nodiscard]] const move& at(move_index i) const { return trail_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] move_index last_move(bound_index b) const { return last_[b]; }
    /// Where the moves of a level above 0 start.
    [[nodiscard]] move_index start_of(std::uint32_t level) const { return level_starts_[level - 1]; }

    void push_level() { level_starts_.push_back(moves()); }

    /// The bound must rise by it, and stay within the opposite one.
    void raise(literal l, reason why) {
        trail_.push_back({l.bound, level(), values_[l.bound], l.value, last_[l.bound], why});
        last_[l.bound] = moves() - 1;
        values_[l.bound] = l.value;
        if (level() == 0) root_[l.bound] = l.value;
    }

    /// Takes back all moves of the levels above.
    void back_to(std::uint32_t level) {
        if (level >= this->level()) return;
        const auto first = level_starts_[level];
        while (moves() > first) {
            const auto& m = trail_.back();
            values_[m.bound] = m.before;
            last_[m.bound] = m.previous;
            trail_.pop_back();
        }
        level_starts_.resize(level);
    }

    /// The last move that isn't hidden disappears from `last_move` and `visible`; the bounds stay. For walking the
    /// trail backwards; `unhide` ends the walk.
    void hide(move_index i) {
        last_[at(i).bound] = at(i).previous;
        hidden_from_ = i;
    }
    void unhide() {
        for (; hidden_from_ < moves(); ++hidden_from_)
            last_[at(hidden_from_).bound] = hidden_from_;
        hidden_from_ = std::numeric_limits<move_index>::max();
    }
    [[nodiscard]] double visible(bound_index b) const { return last_[b] == no_move ? root_[b] : at(last_[b]).after; }
    /// The first visible move that makes a literal true; `no_move` if the root does.
    [[nodiscard]] move_index first_move_of(literal l) const {
        if (l.value <= root_[l.bound]) return no_move;
        auto i = last_[l.bound];
        while (at(i).previous != no_move && at(at(i).previous).after >= l.value)
            i = at(i).previous;
        return i;
    }

    /// Forgets how the bounds of level 0 came to be. Only at level 0.
    void forget_root_moves() {
        OPTPIPE_EXPECT(level() == 0, "forget_root_moves: not at the root");
        for (const auto& m : trail_)
            last_[m.bound] = no_move;
        trail_.clear();
    }

private:
    std::vector<double> values_;
    std::vector<double> root_;
    std::vector<move_index> last_;
    std::vector<unsigned char> whole_;
    std::vector<move> trail_;
    std::vector<move_index> level_starts_;
    move_index hidden_from_ = std::numeric_limits<move_index>::max();
};

} // namespace optpipe::milp::search
