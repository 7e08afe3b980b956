#pragma once

#include "optpipe/milp/bytes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Columns by a key that rises as the search goes down, and falls only where somebody says so: the least first. Keys
/// are looked up again when their turn comes.
class rising_order {
public:
    /// For a new column, and one whose key may have fallen.
    void insert(std::size_t j, double key) {
        heap_.emplace_back(key, static_cast<std::uint32_t>(j));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>{});
    }
    /// The first column by its key of now that isn't done. It leaves the order.
    template <class Key, class Done> [[nodiscard]] std::optional<std::size_t> pop(Key key, Done is_done) {
        while (!heap_.empty()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>{});
            const auto [then, j] = heap_.back();
            heap_.pop_back();
            if (is_done(j)) continue;
            if (const double now = key(j); now > then)
                insert(j, now);
            else
                return j;
        }
        return std::nullopt;
    }
    void clear() { heap_.clear(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(heap_); }

private:
    std::vector<std::pair<double, std::uint32_t>> heap_;
};

} // namespace optpipe::milp::search
