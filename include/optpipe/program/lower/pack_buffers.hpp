#pragma once

#include "optpipe/core/random.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A buffer that is in use from moment `begin` to moment `end`. Moments count allocations and releases.
struct buffer_lifetime {
    std::size_t bytes = 0;
    std::size_t begin = 0;
    std::size_t end = std::numeric_limits<std::size_t>::max();

    [[nodiscard]] bool overlaps(const buffer_lifetime& other) const { return begin < other.end && other.begin < end; }
    /// Size × lifetime, for sorting.
    [[nodiscard]] double area() const { return static_cast<double>(bytes) * static_cast<double>(end - begin); }
};

/// Each buffer's offset, and the size of the memory for all buffers.
struct buffer_packing {
    std::vector<std::size_t> offsets;
    std::size_t size = 0;
};

/// Limits the work of `buffer_packer`. Packing takes tenths of a second for a rank. Ten times higher limits let only a
/// few percent more cases fit.
struct packing_effort {
    /// Number of placements of all buffers, per initial order.
    std::size_t rounds = 16;
    /// Number of comparisons of two buffers in the local search that changes the best order.
    double comparisons = 2e7;
};

/// Dynamic storage allocation with known lifetimes, which is NP-hard. Each buffer goes into the gap that it fills best,
/// one buffer after the other. Three initial orders are tried: by decreasing size, by decreasing size × lifetime, and
/// by first use. Buffers above `limit` move to the front of the order, and all buffers are placed again. In the end, a
/// local search modifies the best order found. No buffer crosses a multiple of `part`. The result is deterministic.
class buffer_packer {
public:
    buffer_packer(std::span<const buffer_lifetime> buffers, std::size_t part, std::size_t limit,
                  packing_effort effort = {})
        : buffers_{buffers}, part_{part}, limit_{limit}, effort_{effort} {}

    [[nodiscard]] buffer_packing run() {
        const auto by = [](const auto& key) {
            return [key](const buffer_lifetime& a, const buffer_lifetime& b) { return key(a) > key(b); };
        };
        search_from(by([](const buffer_lifetime& b) { return static_cast<double>(b.bytes); }));
        search_from(by([](const buffer_lifetime& b) { return b.area(); }));
        search_from(by([](const buffer_lifetime& b) { return -static_cast<double>(b.begin); }));
        change_order();
        return std::move(best_);
    }

private:
    [[nodiscard]] bool is_done() const { return best_.size <= limit_ && !best_.offsets.empty(); }
    /// Number of bytes that lie above the limit.
    [[nodiscard]] std::size_t excess(const buffer_packing& made) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < buffers_.size(); ++i)
            if (const auto end = made.offsets[i] + buffers_[i].bytes; end > limit_)
                sum += std::min(buffers_[i].bytes, end - limit_);
        return sum;
    }

    template <class Before> void search_from(const Before& before) {
        if (is_done()) return;
        std::vector<std::size_t> order(buffers_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return before(buffers_[a], buffers_[b]); });
        for (std::size_t round = 0; round < effort_.rounds && !is_done(); ++round) {
            auto found = place(order);
            const auto over = excess(found);
            const auto is_above = [&](std::size_t i) { return found.offsets[i] + buffers_[i].bytes > limit_; };
            if (best_.offsets.empty() || over < excess_) {
                best_order_ = order;
                excess_ = over;
                best_ = found;
            }
            std::stable_partition(order.begin(), order.end(), is_above);
        }
    }
    /// Moves a random buffer in the best order, and keeps the change unless it is worse.
    void change_order() {
        random_numbers random{1};
        const auto count = buffers_.size();
        double spent = 0.0;
        while (!is_done() && spent < effort_.comparisons) {
            auto order = best_order_;
            const auto from = static_cast<std::ptrdiff_t>(random.below(count));
            const auto to = static_cast<std::ptrdiff_t>(random.below(count));
            const auto at = order.begin();
            if (from < to)
                std::rotate(at + from, at + from + 1, at + to + 1);
            else
                std::rotate(at + to, at + from, at + from + 1);
            auto found = place(order);
            spent += static_cast<double>(count) * static_cast<double>(count) / 2.0;
            const auto over = excess(found);
            if (over > excess_) continue;
            best_order_ = std::move(order);
            excess_ = over;
            best_ = std::move(found);
        }
    }
    [[nodiscard]] buffer_packing place(const std::vector<std::size_t>& order) const {
        buffer_packing made{std::vector<std::size_t>(buffers_.size()), 0};
        std::vector<std::size_t> placed; // by offset
        placed.reserve(order.size());
        for (const auto i : order) {
            made.offsets[i] = offset_for(i, placed, made.offsets);
            made.size = std::max(made.size, made.offsets[i] + buffers_[i].bytes);
            const auto behind =
                std::upper_bound(placed.begin(), placed.end(), made.offsets[i],
                                 [&](std::size_t offset, std::size_t other) { return offset < made.offsets[other]; });
            placed.insert(behind, i);
        }
        return made;
    }
    /// The offset for buffer `i`: the start of the smallest gap that is large enough. If no gap is large enough, the
    /// offset is the end of the last simultaneous buffer.
    [[nodiscard]] std::size_t offset_for(std::size_t i, const std::vector<std::size_t>& placed,
                                         const std::vector<std::size_t>& offsets) const {
        const auto bytes = buffers_[i].bytes;
        auto least = std::numeric_limits<std::size_t>::max();
        auto best = least;
        std::size_t gap = 0;
        for (const auto other : placed) {
            if (!buffers_[i].overlaps(buffers_[other])) continue;
            const auto start = within_part(gap, bytes);
            const auto end = offsets[other];
            if (start + bytes <= end && end - start - bytes < least) {
                least = end - start - bytes;
                best = start;
            }
            gap = std::max(gap, end + buffers_[other].bytes);
        }
        return least == std::numeric_limits<std::size_t>::max() ? within_part(gap, bytes) : best;
    }
    [[nodiscard]] std::size_t within_part(std::size_t offset, std::size_t bytes) const {
        const auto left = part_ - offset % part_;
        return bytes > left ? offset + left : offset;
    }

    std::span<const buffer_lifetime> buffers_;
    std::size_t part_;
    std::size_t limit_;
    packing_effort effort_;
    buffer_packing best_{};
    std::vector<std::size_t> best_order_{};
    std::size_t excess_ = 0;
};

} // namespace optpipe::detail
