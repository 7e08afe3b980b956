#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The memory of one rank while operations are placed in an order. Acquisitions come at increasing times; releases come
/// in one queue per lane, each at increasing times, and those by operations of other ranks in any order of time.
class memory_ledger {
public:
    OPTPIPE_CONSTEXPR memory_ledger() = default;
    OPTPIPE_CONSTEXPR explicit memory_ledger(memory_size limit) : limit_{limit} {}

    /// The earliest time at which `amount` fits, not before `t`, nor before the last acquisition; unlimited if the
    /// announced releases never give enough room.
    constexpr duration fit(memory_size amount, duration t) {
        t = std::max(t, last_);
        if (limit_.is_unlimited()) return t;
        while (const release* next = earliest())
            if (next->time <= t || level_ + amount > limit_) {
                t = std::max(t, next->time);
                take(*next);
            } else {
                break;
            }
        return level_ + amount > limit_ ? duration::unlimited() : t;
    }
    constexpr void acquire(memory_size amount, duration t) {
        level_ += amount;
        last_ = t;
    }
    OPTPIPE_CONSTEXPR void promise(std::size_t which, memory_size amount, duration t) {
        if (limit_.is_unlimited()) return;
        lanes_[which].queue.push_back({t, amount});
    }
    OPTPIPE_CONSTEXPR void promise_from_elsewhere(memory_size amount, duration t) {
        if (limit_.is_unlimited()) return;
        uses_elsewhere_ = true;
        auto& [queue, head] = elsewhere_;
        auto at = queue.size();
        queue.push_back({t, amount});
        for (; at > head && queue[at - 1].time > t; --at)
            std::swap(queue[at - 1], queue[at]);
    }

private:
    struct release {
        duration time;
        memory_size amount;
    };
    struct lane {
        std::vector<release> queue{};
        std::size_t head = 0;
    };

    constexpr const release* earliest() const {
        const release* first = nullptr;
        for (const auto& l : lanes_)
            if (l.head < l.queue.size() && (!first || l.queue[l.head].time < first->time)) first = &l.queue[l.head];
        if (!uses_elsewhere_) return first;
        const auto& [queue, head] = elsewhere_;
        return head < queue.size() && (!first || queue[head].time < first->time) ? &queue[head] : first;
    }
    constexpr void take(const release& r) {
        level_ -= r.amount;
        for (auto& l : lanes_)
            if (l.head < l.queue.size() && &l.queue[l.head] == &r) {
                ++l.head;
                return;
            }
        ++elsewhere_.head;
    }

    memory_size limit_ = memory_size::unlimited();
    memory_size level_{};
    duration last_{};
    lane lanes_[2]{}; // computations and transfers of the rank
    bool uses_elsewhere_ = false;
    lane elsewhere_{};
};

/// The compute lanes, copy engines, host links and memories of all ranks while operations are placed one after the
/// other; each keeps the order of the calls.
template <pipeline_graph Graph> class rank_resources {
public:
    constexpr rank_resources(const basic_problem<Graph>& p, tolerance t)
        : transfer_{&p.transfer}, compute_free_(p.graph.ranks()), engine_free_(2 * p.graph.ranks()),
          link_free_(2 * p.graph.ranks()) {
        const auto slack = t.at(p.memory_scale());
        for (const rank r : p.graph.all_ranks()) {
            device_.push_back(memory_ledger{p.memory_limit[r] + slack});
            host_.push_back(memory_ledger{p.host_memory_limit[r] + slack});
        }
    }

    struct start_time {
        duration start{};
        /// The memory that never has room for the operation; `start` is then unlimited, and no further call is allowed.
        std::optional<memory_kind> lacks{};
    };
    /// The earliest start of an operation whose inputs are ready at `ready`.
    constexpr start_time earliest_start(operation_kind kind, rank r, const memory_effect& effect, duration ready) {
        auto start = std::max(ready, is_transfer(kind) ? std::max(engine(kind, r), link(kind, r)) : compute_free_[r]);
        if (effect.host_acquired_at_start > memory_size{}) {
            start = host_[r.position()].fit(effect.host_acquired_at_start, start);
            if (start.is_unlimited()) return {start, memory_kind::host};
        }
        if (effect.acquired_at_start > memory_size{}) {
            start = device_[r.position()].fit(effect.acquired_at_start, start);
            if (start.is_unlimited()) return {start, memory_kind::device};
        }
        return {start, {}};
    }
    /// Occupies the resources of an operation; `start` is the result of `earliest_start`.
    constexpr void occupy(operation_kind kind, rank r, const memory_effect& effect, duration start, duration end) {
        const bool moves = is_transfer(kind);
        if (moves)
            engine(kind, r) = link(kind, r) = end;
        else
            compute_free_[r] = end;
        const std::size_t lane = moves ? 1 : 0;
        auto& device = device_[r.position()];
        auto& host = host_[r.position()];
        if (effect.acquired_at_start > memory_size{}) device.acquire(effect.acquired_at_start, start);
        if (effect.released_at_end > memory_size{}) device.promise(lane, effect.released_at_end, end);
        if (effect.host_acquired_at_start > memory_size{}) host.acquire(effect.host_acquired_at_start, start);
        if (effect.host_released_at_end > memory_size{}) host.promise(lane, effect.host_released_at_end, end);
    }

    /// Announces that an operation frees `amount` of what other operations took on rank `r`.
    constexpr void release(rank r, memory_size amount, duration end) {
        device_[r.position()].promise_from_elsewhere(amount, end);
    }

private:
    constexpr duration& engine(operation_kind kind, rank r) {
        return engine_free_[copy_engine_of(*transfer_, r, is_inward(kind))];
    }
    constexpr duration& link(operation_kind kind, rank r) {
        return link_free_[host_channel_of(*transfer_, r, is_inward(kind))];
    }

    const transfer_rules<Graph::rank_extent>* transfer_;
    per_rank<duration, Graph::rank_extent> compute_free_;
    std::vector<duration> engine_free_;
    std::vector<duration> link_free_;
    std::vector<memory_ledger> device_{};
    std::vector<memory_ledger> host_{};
};

} // namespace optpipe::detail
