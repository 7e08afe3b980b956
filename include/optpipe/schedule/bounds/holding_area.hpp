#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound from memory × time, for any graph and microbatches. An operation's memory is held at least for the
/// longest path to the operation that releases it. The areas (memory × time) of all operations must fit under the
/// rank's limit. Memory isn't full near the start and the end, because operations fill and empty it one at a time. The
/// bound is 0 if no memory is limited. The bound is also 0 for plain problems, which have `memory_area_bound`. For n
/// cells, takes O(n log n) times the number of stages and slices of a sequence.
///
/// `stop` is polled between the ranks. After a stop, the remaining ranks count as unlimited in memory.
[[nodiscard]] duration holding_area_bound(const problem& p, stop_check stop = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/chain_paths.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/memory_ramp.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe {
namespace detail {

/// The least time in which `area` fits under `limit` between the ramps `up` and `down`. The result is the maximum over
/// four choices: both ramps, either ramp, or none. A choice counts only if its ramps don't overlap. The area between
/// ramps grows with the time, so no shorter time is enough.
inline double least_time(double area, double limit, const memory_ramp& up, const memory_ramp& down) {
    double best = 0.0;
    for (const auto& first : {up, memory_ramp{}})
        for (const auto& last : {down, memory_ramp{}})
            if (const double time = (area + first.unused + last.unused) / limit; time >= first.time + last.time)
                best = std::max(best, time);
    return best;
}

/// The memory × time of the holdings of one device.
class device_holdings {
public:
    device_holdings(const chain_system& c, chain_paths& paths, std::size_t device, bool has_ramps)
        : c_{&c}, on_{&c.devices[device]}, device_{device}, has_ramps_{has_ramps}, taken_(on_->chains.size(), 0.0),
          released_(taken_) {
        for (const auto& h : on_->holdings)
            if (!c.span || !is_released_elsewhere(h)) add(h, paths);
    }

    [[nodiscard]] double bound() const {
        if (!on_->limited || area_ <= 0.0) return 0.0;
        memory_ramp up;
        memory_ramp down;
        if (has_ramps_) {
            up = ramp(taken_, 0.0);
            down = ramp(released_, released_elsewhere_);
        }
        return (c_->span ? 0.0 : head_ + tail_) + least_time(area_, on_->limit, up, down);
    }

private:
    [[nodiscard]] bool is_released_elsewhere(const chain_system::holding& h) const {
        return c_->rank_of[h.to] != device_;
    }
    void add(const chain_system::holding& h, chain_paths& paths) {
        const double size = h.size * static_cast<double>(c_->count[h.from]);
        area_ += size * paths.lifespan(h.from, h.to);
        taken_[c_->place[h.from]] += h.size;
        if (is_released_elsewhere(h))
            released_elsewhere_ += size;
        else
            released_[c_->place[h.to]] += h.size;
        head_ = std::min(head_, paths.head(h.from));
        tail_ = std::min(tail_, paths.tail(h.to));
    }
    [[nodiscard]] memory_ramp ramp(const std::vector<double>& sizes, double at_once) const {
        ramp_operations operations;
        for (std::size_t i = 0; i < sizes.size(); ++i)
            operations.add(sizes[i], c_->length[on_->chains[i]], c_->count[on_->chains[i]]);
        return operations.below(on_->limit - at_once);
    }

    const chain_system* c_;
    const chain_system::device* on_;
    std::size_t device_;
    bool has_ramps_;
    double area_ = 0.0;
    double head_ = std::numeric_limits<double>::infinity();
    double tail_ = std::numeric_limits<double>::infinity();
    /// Memory that an operation of each chain takes (`taken_`), or releases on its own device (`released_`). Indexed by
    /// the position of the chain.
    std::vector<double> taken_;
    std::vector<double> released_;
    double released_elsewhere_ = 0.0;
};

} // namespace detail

OPTPIPE_INLINE duration holding_area_bound(const problem& p, stop_check stop) {
    const auto is_limited = [](memory_size limit) { return !limit.is_unlimited(); };
    if (is_plain(p) || std::none_of(p.memory_limit.begin(), p.memory_limit.end(), is_limited)) return {};
    const auto c = detail::chains_without_orders(p);
    detail::chain_paths paths{c};
    const bool has_ramps = p.overlaps.empty(); // the two operations of a pair run at once
    double best = 0.0;
    for (std::size_t device = 0; device < c.devices.size() && !stop(); ++device)
        best = std::max(best, detail::device_holdings{c, paths, device, has_ramps}.bound());
    return duration{best};
}

} // namespace optpipe
#endif
