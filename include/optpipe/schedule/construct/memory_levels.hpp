#pragma once

#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The levels of a memory after each of its changes, by time. Takes O(log n) to find the highest level in a range, or
/// to raise all levels in a range.
class memory_levels {
public:
    explicit memory_levels(const std::vector<memory_size>& levels) {
        while (size_ < levels.size())
            size_ *= 2;
        highest_.assign(2 * size_, memory_size{});
        raised_.assign(size_, memory_size{});
        std::copy(levels.begin(), levels.end(), highest_.begin() + static_cast<std::ptrdiff_t>(size_));
        for (std::size_t i = size_; i-- > 1;)
            combine(i);
    }
    /// The highest of the levels in [`first`, `last`); 0 if the range is empty.
    [[nodiscard]] memory_size highest(std::size_t first, std::size_t last) const {
        return first < last ? highest(root(), first, last) : memory_size{};
    }
    void raise(std::size_t first, std::size_t last, memory_size amount) { raise(root(), first, last, amount); }

private:
    /// A node of the tree, and the range of the levels below it.
    struct node {
        std::size_t index;
        std::size_t begin;
        std::size_t end;

        [[nodiscard]] bool is_within(std::size_t first, std::size_t last) const {
            return first <= begin && end <= last;
        }
        [[nodiscard]] bool is_outside(std::size_t first, std::size_t last) const {
            return end <= first || last <= begin;
        }
        [[nodiscard]] std::pair<node, node> halves() const {
            const auto middle = begin + (end - begin) / 2;
            return {{2 * index, begin, middle}, {2 * index + 1, middle, end}};
        }
    };

    [[nodiscard]] node root() const { return {1, 0, size_}; }
    void combine(std::size_t i) { highest_[i] = raised_[i] + std::max(highest_[2 * i], highest_[2 * i + 1]); }
    [[nodiscard]] memory_size highest(const node& at, std::size_t first, std::size_t last) const {
        if (at.is_outside(first, last)) return {};
        if (at.is_within(first, last)) return highest_[at.index];
        const auto [left, right] = at.halves();
        return raised_[at.index] + std::max(highest(left, first, last), highest(right, first, last));
    }
    void raise(const node& at, std::size_t first, std::size_t last, memory_size amount) {
        if (at.is_outside(first, last)) return;
        if (at.is_within(first, last)) {
            highest_[at.index] += amount;
            if (at.index < size_) raised_[at.index] += amount;
            return;
        }
        const auto [left, right] = at.halves();
        raise(left, first, last, amount);
        raise(right, first, last, amount);
        combine(at.index);
    }

    std::size_t size_ = 1; ///< the number of leaves, a power of 2
    /// The highest level below each node. Includes raises at the node and below, but not above.
    std::vector<memory_size> highest_{};
    /// For each node, the amount by which all its levels were raised together.
    std::vector<memory_size> raised_{};
};

} // namespace optpipe::detail
