#pragma once

#include "optpipe/planner/flat_problem.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Sequences of operations in one array, and the position of each operation. An operation is in at most one sequence.
/// Edits are tentative until all of them are committed or rolled back.
class operation_sequences {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;

    operation_sequences(std::size_t operations, const std::vector<id>& lengths) : position_(operations, none) {
        for (const id length : lengths)
            begin_.push_back(begin_.back() + length);
        order_.assign(at(begin_.back()), none);
    }

    [[nodiscard]] const std::vector<id>& order() const { return order_; }
    [[nodiscard]] id size() const { return begin_.back(); }
    [[nodiscard]] id begin(id sequence) const { return begin_[at(sequence)]; }
    [[nodiscard]] id end(id sequence) const { return begin_[at(sequence) + 1]; }
    [[nodiscard]] id operator[](id position) const { return order_[at(position)]; }
    [[nodiscard]] id position(id i) const { return position_[at(i)]; }

    /// Replaces all sequences. `rollback` can't undo this change. Contract: every sequence keeps its length.
    void assign(std::vector<id> order) {
        order_ = std::move(order);
        number(0, size());
        commit();
    }
    /// Records the operations in [first, last), which can then be replaced.
    void save(id first, id last) {
        saved_.push_back({first, last - first, buffer_.size()});
        buffer_.insert(buffer_.end(), order_.begin() + first, order_.begin() + last);
    }
    void replace(id position, id i) {
        order_[at(position)] = i;
        position_[at(i)] = position;
    }
    /// Swaps the blocks [first, middle) and [middle, last).
    void rotate(id first, id middle, id last) {
        save(first, last);
        auto* const data = order_.data();
        std::rotate(data + first, data + middle, data + last);
        number(first, last);
    }
    /// Moves the operation at `from` to `to`. The operations between these positions shift.
    void shift(id from, id to) {
        if (from < to)
            rotate(from, from + 1, to + 1);
        else if (to < from)
            rotate(to, from, from + 1);
    }
    void commit() {
        saved_.clear();
        buffer_.clear();
    }
    void rollback() {
        for (std::size_t k = saved_.size(); k-- > 0;)
            for (id i = 0; i < saved_[k].count; ++i)
                replace(saved_[k].first + i, buffer_[saved_[k].offset + at(i)]);
        commit();
    }

private:
    struct segment {
        id first = 0;
        id count = 0;
        std::size_t offset = 0;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    void number(id first, id last) {
        for (id position = first; position < last; ++position)
            position_[at(order_[at(position)])] = position;
    }

    std::vector<id> order_;
    std::vector<id> begin_{0};
    std::vector<id> position_;
    std::vector<segment> saved_;
    std::vector<id> buffer_;
};

} // namespace optpipe::detail
