#pragma once

#include "optpipe/milp/bytes.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// Many short lists of (index, value) in one array. A list that outgrows its place moves to the end.
class growing_lists {
public:
    void reset(std::size_t lists) {
        lists_.assign(lists, {});
        index_.clear();
        value_.clear();
    }
    /// Allocates room for an empty list.
    void reserve(int list, int capacity) {
        auto& l = lists_[at(list)];
        l.start = static_cast<int>(index_.size());
        l.capacity = capacity;
        grow(capacity);
    }
    [[nodiscard]] int size(int list) const { return lists_[at(list)].size; }
    [[nodiscard]] const int* index(int list) const { return index_.data() + lists_[at(list)].start; }
    [[nodiscard]] const double* value(int list) const { return value_.data() + lists_[at(list)].start; }
    [[nodiscard]] double* value(int list) { return value_.data() + lists_[at(list)].start; }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(lists_, index_, value_); }
    [[nodiscard]] std::size_t footprint() const { return index_.size(); }

    void append(int list, int index, double value) {
        if (lists_[at(list)].size == lists_[at(list)].capacity) move_to_end(list);
        auto& l = lists_[at(list)];
        index_[at(l.start + l.size)] = index;
        value_[at(l.start + l.size)] = value;
        ++l.size;
    }
    /// Removes an entry. The list's last entry takes the place of the removed entry.
    void remove_at(int list, int k) {
        auto& l = lists_[at(list)];
        --l.size;
        index_[at(l.start + k)] = index_[at(l.start + l.size)];
        value_[at(l.start + k)] = value_[at(l.start + l.size)];
    }
    void remove(int list, int index) { remove_at(list, find(list, index)); }
    /// The position of an index that the list contains.
    [[nodiscard]] int find(int list, int index) const {
        const int* const entries = this->index(list);
        int k = 0;
        while (entries[k] != index)
            ++k;
        return k;
    }
    void clear(int list) { lists_[at(list)].size = 0; }

private:
    struct place {
        int start = 0;
        int size = 0;
        int capacity = 0;
    };
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }
    void grow(int count) {
        index_.resize(index_.size() + at(count));
        value_.resize(value_.size() + at(count));
    }
    void move_to_end(int list) {
        constexpr int least = 4;
        const auto old = lists_[at(list)];
        const int capacity = 2 * old.capacity + least;
        reserve(list, capacity);
        for (int k = 0; k < old.size; ++k) {
            index_[at(lists_[at(list)].start + k)] = index_[at(old.start + k)];
            value_[at(lists_[at(list)].start + k)] = value_[at(old.start + k)];
        }
    }

    std::vector<place> lists_;
    std::vector<int> index_;
    std::vector<double> value_;
};

} // namespace optpipe::milp::lp
