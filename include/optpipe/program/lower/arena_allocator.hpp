#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/pack_buffers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Allocates from one block of memory according to the lifetimes in a plan. A free block stores the instruction that
/// freed it, for the next user's wait. Memory may be divided into parts of equal size. No segment crosses from one part
/// into the next.
///
/// The memory in use should stay within a budget, which is the plan's peak. The memory exceeds the budget if a
/// contiguous segment has no room.
class arena_allocator {
public:
    static constexpr std::uint32_t no_instruction = std::numeric_limits<std::uint32_t>::max();

    /// Allocated segments, and the instructions that must end before their use.
    struct taken {
        std::vector<memory_segment> segments;
        std::vector<std::uint32_t> after;
    };

    static constexpr std::size_t no_parts = std::numeric_limits<std::size_t>::max();

    explicit arena_allocator(std::size_t budget = 0, std::size_t part = no_parts) : part_{part}, budget_{budget} {
        grow(budget);
    }
    /// Allocates segments with known offsets. `packed` lists the offsets in the order of allocation.
    arena_allocator(std::size_t budget, std::size_t part, buffer_packing packed)
        : part_{part}, budget_{budget}, packed_{std::move(packed)} {
        grow(packed_.size);
    }

    /// Announces that the end of instruction `by`, at `instant`, will release the segments.
    void promise(std::size_t instant, std::uint32_t by, std::vector<memory_segment> segments) {
        promises_.push({instant, by, std::move(segments)});
    }
    /// Releases all segments announced up to `instant`.
    void advance(std::size_t instant) {
        while (!promises_.empty() && promises_.top().instant <= instant)
            keep_next_promise();
    }
    /// Releases the next announced segments. Returns false if no segments are announced.
    bool keep_next_promise() {
        if (promises_.empty()) return false;
        const auto next = promises_.top();
        promises_.pop();
        for (const auto& s : next.segments) {
            give_back({s.offset, s.bytes, next.instant, next.by});
            if (const auto own = live_.find(s.offset); own != live_.end()) {
                lifetimes_[own->second].end = moment_++;
                live_.erase(own);
            }
        }
        return true;
    }
    /// Increases the budget by `bytes`.
    void raise_budget(std::size_t bytes) {
        budget_ += bytes;
        if (packed_.offsets.empty() && size_ < budget_) grow(budget_ - size_);
    }
    /// Appends `bytes` of free memory.
    void grow(std::size_t bytes) {
        for (const auto end = size_ + bytes; size_ < end;) {
            const auto next = std::min(end, size_ + left_of_part(size_));
            give_back({size_, next - size_, 0, no_instruction});
            size_ = next;
        }
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] std::size_t free_bytes() const { return free_bytes_; }
    /// Number of bytes that may still be taken within the budget.
    [[nodiscard]] std::size_t room() const {
        const auto used = size_ - free_bytes_;
        return used < budget_ ? budget_ - used : 0;
    }
    /// Lifetimes of the segments that `take_segment` allocated, in the order of allocation. Times count allocations and
    /// releases.
    [[nodiscard]] std::span<const buffer_lifetime> lifetimes() const { return lifetimes_; }
    [[nodiscard]] std::size_t part() const { return part_; }
    /// Least growth of the arena, in bytes, to fit a segment of `bytes` at its end. `bytes` must not exceed the size of
    /// a part.
    [[nodiscard]] std::size_t missing_at_end(std::size_t bytes) const {
        auto begin = size_;
        for (std::size_t i = free_.size(); i-- > 0 && free_[i].offset + free_[i].bytes == begin;) {
            begin = free_[i].offset;
            if (begins_part(begin)) break;
        }
        const auto tail = size_ - begin;
        if (bytes > left_of_part(begin)) return left_of_part(begin) - tail + bytes;
        return bytes > tail ? bytes - tail : 0;
    }

    /// Allocates one contiguous segment. Empty if no free range is long enough.
    taken take_segment(std::size_t bytes) {
        taken result;
        if (!packed_.offsets.empty()) {
            const auto offset = packed_.offsets[lifetimes_.size()];
            split_at(offset);
            split_at(offset + bytes);
            const auto first =
                std::find_if(free_.begin(), free_.end(), [&](const block& b) { return b.offset == offset; });
            OPTPIPE_EXPECT(first != free_.end(), "arena_allocator: packed segments overlap");
            take_run(static_cast<std::size_t>(first - free_.begin()), bytes, result);
        } else {
            const auto best = best_run(bytes);
            if (best.first == none) return {};
            take_run(best.first, bytes, result);
        }
        live_[result.segments.front().offset] = lifetimes_.size();
        lifetimes_.push_back({bytes, moment_++});
        return result;
    }
    /// Allocates several segments, beginning with the block that was freed first. Contract: there is enough free
    /// memory.
    taken take_pieces(std::size_t bytes) {
        taken result;
        while (bytes > 0) {
            const auto oldest = std::min_element(free_.begin(), free_.end(), [](const block& a, const block& b) {
                return std::pair{a.since, b.bytes} < std::pair{b.since, a.bytes};
            });
            bytes -= take_from(static_cast<std::size_t>(oldest - free_.begin()), bytes, result);
            erase_empty();
        }
        return result;
    }

private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    struct block {
        std::size_t offset;
        std::size_t bytes;
        std::size_t since;
        std::uint32_t by;
    };
    struct promised {
        std::size_t instant;
        std::uint32_t by;
        std::vector<memory_segment> segments;
        friend bool operator<(const promised& a, const promised& b) {
            return std::pair{a.instant, a.by} > std::pair{b.instant, b.by};
        }
    };
    /// Adjacent free blocks that together are large enough for a segment.
    struct run {
        std::size_t first = none;
        std::size_t last = none;
        std::size_t left_over = 0;
        std::size_t since = 0;
        /// Whether this run is better than `other`. An exact fit is best, because it leaves no fragments. Between runs
        /// that don't fit exactly, the run freed earlier is better.
        [[nodiscard]] bool better_than(const run& other) const {
            if (other.first == none) return true;
            if ((left_over == 0) != (other.left_over == 0)) return left_over == 0;
            return std::pair{since, left_over} < std::pair{other.since, other.left_over};
        }
    };

    [[nodiscard]] bool begins_part(std::size_t offset) const { return offset % part_ == 0; }
    [[nodiscard]] std::size_t left_of_part(std::size_t offset) const { return part_ - offset % part_; }
    /// Whether a segment that fills a block up to `end` may continue into block `b`.
    [[nodiscard]] bool continues(std::size_t end, const block& b) const {
        return b.offset == end && !begins_part(b.offset);
    }
    [[nodiscard]] run best_run(std::size_t bytes) const {
        run best;
        for (std::size_t first = 0; first < free_.size(); ++first) {
            std::size_t length = 0;
            std::size_t since = 0;
            for (std::size_t last = first; last < free_.size(); ++last) {
                if (last > first && !continues(free_[first].offset + length, free_[last])) break;
                length += free_[last].bytes;
                since = std::max(since, free_[last].since);
                if (length < bytes) continue;
                if (const run candidate{first, last, length - bytes, since}; candidate.better_than(best))
                    best = candidate;
                break;
            }
        }
        return best;
    }
    /// Allocates from adjacent free blocks, starting with the block at `at`.
    void take_run(std::size_t at, std::size_t bytes, taken& result) {
        for (auto missing = bytes; missing > 0; ++at) {
            OPTPIPE_EXPECT(at < free_.size(), "arena_allocator: segments are of free memory");
            missing -= take_from(at, missing, result);
        }
        erase_empty();
    }
    /// Splits the free block that contains `offset`.
    void split_at(std::size_t offset) {
        const auto at = std::find_if(free_.begin(), free_.end(),
                                     [&](const block& b) { return b.offset < offset && offset < b.offset + b.bytes; });
        if (at == free_.end()) return;
        auto behind = *at;
        at->bytes = offset - at->offset;
        behind.offset = offset;
        behind.bytes -= at->bytes;
        free_.insert(at + 1, behind);
    }
    std::size_t take_from(std::size_t at, std::size_t most, taken& result) {
        auto& from = free_[at];
        const auto bytes = std::min(most, from.bytes);
        auto& segments = result.segments;
        if (!segments.empty() && segments.back().offset + segments.back().bytes == from.offset)
            segments.back().bytes += bytes;
        else
            segments.push_back({from.offset, bytes});
        if (from.by != no_instruction) result.after.push_back(from.by);
        from.offset += bytes;
        from.bytes -= bytes;
        free_bytes_ -= bytes;
        return bytes;
    }
    void erase_empty() {
        free_.erase(std::remove_if(free_.begin(), free_.end(), [](const block& b) { return b.bytes == 0; }),
                    free_.end());
    }
    void give_back(const block& b) {
        free_bytes_ += b.bytes;
        const auto after =
            std::find_if(free_.begin(), free_.end(), [&](const block& other) { return other.offset > b.offset; });
        const auto at = free_.insert(after, b) - free_.begin();
        join(static_cast<std::size_t>(at));
        if (at > 0) join(static_cast<std::size_t>(at) - 1);
    }
    /// Merges two adjacent blocks freed by the same instruction at the same instant.
    void join(std::size_t at) {
        if (at + 1 >= free_.size()) return;
        auto& a = free_[at];
        const auto& b = free_[at + 1];
        if (!continues(a.offset + a.bytes, b) || a.since != b.since || a.by != b.by) return;
        a.bytes += b.bytes;
        free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }

    std::size_t part_;
    std::size_t budget_ = 0;
    buffer_packing packed_{};
    std::size_t size_ = 0;
    std::size_t free_bytes_ = 0;
    std::vector<block> free_;
    std::priority_queue<promised> promises_;
    std::vector<buffer_lifetime> lifetimes_;
    std::size_t moment_ = 0;
    /// Position in `lifetimes_` of each segment in use, by its offset.
    std::map<std::size_t, std::size_t> live_;
};

} // namespace optpipe::detail
