#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/memory_ledger.hpp"
#include "optpipe/schedule/dispatch/occupied_lanes.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe::detail {

/// The compute lanes, copy engines, host links and memories of all ranks while operations are placed.
template <pipeline_graph Graph> class rank_resources {
public:
    constexpr rank_resources(const basic_problem<Graph>& p, tolerance t) : lanes_{p}, free_(lanes_.size()) {
        const auto slack = t.at(p.memory_scale());
        for (const rank r : p.graph.all_ranks()) {
            device_.push_back(memory_ledger{p.memory_limit[r] + slack});
            host_.push_back(memory_ledger{p.host_memory_limit[r] + slack});
        }
    }

    [[nodiscard]] constexpr occupied_lanes lanes_of(operation_kind kind, rank r) const { return lanes_.of(kind, r); }

    struct start_time {
        duration start{};
        /// The kind of memory in which the operation never fits, if any. If the operation never fits, `start` is
        /// unlimited.
        std::optional<memory_kind> lacks{};
    };
    /// The earliest start of an operation whose inputs are ready at `ready`.
    [[nodiscard]] constexpr start_time earliest_start(const occupied_lanes& lanes, rank r, const memory_effect& effect,
                                                      duration ready) const {
        auto start = std::max(ready, free_[lanes.own]);
        if (lanes.shared != lanes.own) start = std::max(start, free_[lanes.shared]);
        if (effect.host_acquired_at_start > memory_size{}) {
            start = host_[r.position()].first_fit(effect.host_acquired_at_start, start);
            if (start.is_unlimited()) return {start, memory_kind::host};
        }
        if (effect.acquired_at_start > memory_size{}) {
            start = device_[r.position()].first_fit(effect.acquired_at_start, start);
            if (start.is_unlimited()) return {start, memory_kind::device};
        }
        return {start, {}};
    }
    /// Occupies the resources of an operation from `now` to `end`. From this call on, nothing on the operation's rank
    /// takes memory before `now`.
    constexpr void occupy(const occupied_lanes& lanes, rank r, const memory_effect& effect, duration now,
                          duration end) {
        free_[lanes.own] = std::max(free_[lanes.own], end);
        if (lanes.shared != lanes.own) free_[lanes.shared] = std::max(free_[lanes.shared], end);
        auto& device = device_[r.position()];
        auto& host = host_[r.position()];
        if (effect.acquired_at_start > memory_size{}) device.acquire(effect.acquired_at_start, now);
        if (effect.released_at_end > memory_size{}) device.release(effect.released_at_end, end);
        if (effect.host_acquired_at_start > memory_size{}) host.acquire(effect.host_acquired_at_start, now);
        if (effect.host_released_at_end > memory_size{}) host.release(effect.host_released_at_end, end);
    }
    /// Announces that an operation frees `amount` at `end` that other operations took on rank `r`.
    constexpr void release(rank r, memory_size amount, duration end) { device_[r.position()].release(amount, end); }
    /// Declares that nothing more takes memory on the rank before the time `now`.
    constexpr void advance(rank r, duration now) {
        device_[r.position()].advance(now);
        host_[r.position()].advance(now);
    }
    constexpr void clear() {
        std::fill(free_.begin(), free_.end(), duration{});
        for (auto& each : device_)
            each.clear();
        for (auto& each : host_)
            each.clear();
    }

private:
    lane_numbering<Graph> lanes_;
    /// The end of the last operation on each lane.
    std::vector<duration> free_;
    std::vector<memory_ledger> device_{};
    std::vector<memory_ledger> host_{};
};

} // namespace optpipe::detail
