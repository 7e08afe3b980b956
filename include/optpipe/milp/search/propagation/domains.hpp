#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// The reason for a bound change. A reason is a decision or global fact (`none`), a row, a clause, or a list of
/// literals.
struct reason {
    enum class source : unsigned char { none, row, disjunction, list };
    source from = source::none;
    std::uint32_t which = 0;
};

/// Position on the trail of bound changes. `not_on_trail` stands for the time before the first change.
using trail_position = std::int32_t;
inline constexpr trail_position not_on_trail = -1;

/// One tightening of a bound.
struct bound_change {
    bound_index bound = 0;
    std::uint32_t level = 0;
    double before = 0.0;
    double after = 0.0;
    trail_position previous = not_on_trail; ///< previous change of the same bound
    reason why;
};

/// The bounds of all columns, with a trail of their changes. The trail is divided into levels, one per decision, and
/// can be undone. Level 0 holds everywhere.
class domains {
public:
    explicit domains(const problem& p)
        : values_(2 * p.columns()), last_(2 * p.columns(), not_on_trail), integral_(p.columns()) {
        for (std::size_t j = 0; j < p.columns(); ++j) {
            values_[lower_of(j)] = p.lower[j];
            values_[upper_of(j)] = -p.upper[j];
            integral_[j] = p.is_integral(j) ? 1 : 0;
        }
        root_ = values_;
    }

    [[nodiscard]] std::size_t columns() const { return integral_.size(); }
    [[nodiscard]] std::size_t bytes() const {
        return bytes_of(values_, root_, last_, integral_, trail_, level_starts_);
    }
    [[nodiscard]] double operator[](bound_index b) const { return values_[b]; }
    [[nodiscard]] double lower(std::size_t j) const { return values_[lower_of(j)]; }
    [[nodiscard]] double upper(std::size_t j) const { return -values_[upper_of(j)]; }
    [[nodiscard]] bool is_integral(std::size_t j) const { return integral_[j] != 0; }
    [[nodiscard]] bool is_fixed(std::size_t j) const { return lower(j) >= upper(j); }
    [[nodiscard]] double width(std::size_t j) const { return upper(j) - lower(j); }
    /// The value of the bound at level 0.
    [[nodiscard]] double at_root(bound_index b) const { return root_[b]; }

    [[nodiscard]] bool is_true(literal l) const { return values_[l.bound] >= l.value; }
    /// Valid only for literals of integral columns.
    [[nodiscard]] bool is_false(literal l) const { return -values_[opposite(l.bound)] < l.value; }

    [[nodiscard]] std::uint32_t level() const { return static_cast<std::uint32_t>(level_starts_.size()); }
    [[nodiscard]] trail_position changes() const { return static_cast<trail_position>(trail_.size()); }
    [[nodiscard]] const bound_change& at(trail_position i) const { return trail_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] trail_position last_change(bound_index b) const { return last_[b]; }
    /// Position of the first change of a level above 0.
    [[nodiscard]] trail_position start_of(std::uint32_t level) const { return level_starts_[level - 1]; }

    void push_level() { level_starts_.push_back(changes()); }

    /// Raises a bound. Contract: the new value is larger, and within the opposite bound.
    void raise(literal l, reason why) {
        trail_.push_back({l.bound, level(), values_[l.bound], l.value, last_[l.bound], why});
        last_[l.bound] = changes() - 1;
        values_[l.bound] = l.value;
        if (level() == 0) root_[l.bound] = l.value;
    }

    /// Undoes all changes of the levels above `level`.
    void back_to(std::uint32_t level) {
        if (level >= this->level()) return;
        const auto first = level_starts_[level];
        while (changes() > first) {
            const auto& m = trail_.back();
            values_[m.bound] = m.before;
            last_[m.bound] = m.previous;
            trail_.pop_back();
        }
        level_starts_.resize(level);
    }

    /// Hides the last visible change from `last_change` and `visible`, until `unhide` is called. The bounds don't
    /// change.
    void hide(trail_position i) {
        last_[at(i).bound] = at(i).previous;
        hidden_from_ = i;
    }
    void unhide() {
        for (; hidden_from_ < changes(); ++hidden_from_)
            last_[at(hidden_from_).bound] = hidden_from_;
        hidden_from_ = std::numeric_limits<trail_position>::max();
    }
    [[nodiscard]] double visible(bound_index b) const {
        return last_[b] == not_on_trail ? root_[b] : at(last_[b]).after;
    }
    /// The first visible change that makes a literal true, or `not_on_trail` at the root.
    [[nodiscard]] trail_position first_change_of(literal l) const {
        if (l.value <= root_[l.bound]) return not_on_trail;
        auto i = last_[l.bound];
        while (at(i).previous != not_on_trail && at(at(i).previous).after >= l.value)
            i = at(i).previous;
        return i;
    }

    /// Deletes the trail of level 0. May only be called at level 0.
    void forget_root_changes() {
        OPTPIPE_EXPECT(level() == 0, "forget_root_changes: not at the root");
        for (const auto& m : trail_)
            last_[m.bound] = not_on_trail;
        trail_.clear();
    }

private:
    std::vector<double> values_;
    std::vector<double> root_;
    std::vector<trail_position> last_;
    std::vector<unsigned char> integral_;
    std::vector<bound_change> trail_;
    std::vector<trail_position> level_starts_;
    trail_position hidden_from_ = std::numeric_limits<trail_position>::max();
};

} // namespace optpipe::milp::search
