#pragma once

#include "optpipe/milp/bytes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// A lazy priority queue of columns. The column with the least lower bound is first. A column's key is refreshed at the
/// top of the queue, because bounds rise down the tree. Each column is returned once, even if its key has fallen
/// several times.
class least_bound_queue {
public:
    /// Inserts a new column, or updates a column whose key may have fallen.
    void insert(std::size_t j, double key) {
        if (j >= least_.size()) least_.resize(j + 1, absent);
        if (key >= least_[j]) return;
        least_[j] = key;
        heap_.emplace_back(key, static_cast<std::uint32_t>(j));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
    }
    /// Removes and returns the first column that isn't done. Columns are compared by their current keys.
    template <class Key, class Done> [[nodiscard]] std::optional<std::size_t> pop(Key key, Done is_done) {
        while (!heap_.empty()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
            const auto [then, j] = heap_.back();
            heap_.pop_back();
            if (then != least_[j]) continue; // outdated, because a lower key was inserted later
            least_[j] = absent;
            if (is_done(j)) continue;
            if (const double now = key(j); now > then)
                insert(j, now);
            else
                return j;
        }
        return std::nullopt;
    }
    void clear() {
        heap_.clear();
        least_.clear();
    }
    /// Number of entries, including outdated ones.
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(heap_, least_); }

private:
    static constexpr double absent = std::numeric_limits<double>::infinity();

    std::vector<std::pair<double, std::uint32_t>> heap_;
    std::vector<double> least_; ///< the valid key of each column
};

} // namespace optpipe::milp::search
