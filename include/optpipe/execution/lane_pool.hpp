#pragma once

#include "optpipe/execution/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace optpipe::execution {

/// The lanes and markers of one rank, which the programs of a run share: only one of them has something in its lanes at
/// a time, so that the next one finds open what it needs. Whatever was opened stays so until the pool goes. By the
/// thread that issues; the executor outlives it.
template <class Executor> class lane_pool {
public:
    using lane_type = lane_of<Executor>;
    using marker_type = marker_of<Executor>;

    explicit lane_pool(Executor& on) : executor_{&on} {}
    lane_pool(const lane_pool&) = delete;
    lane_pool& operator=(const lane_pool&) = delete;

    /// A lane of each of these kinds, which all differ, with room for so many commands at once. Opens those that are
    /// missing; throws what the executor throws where it has no more.
    [[nodiscard]] std::vector<lane_type*> lanes(std::span<const lane_kind> kinds,
                                                std::span<const std::size_t> commands) {
        std::vector<lane_type*> taken;
        for (std::size_t l = 0; l < kinds.size(); ++l)
            taken.push_back(&lane(kinds[l], commands[l]));
        return taken;
    }
    [[nodiscard]] std::vector<marker_type*> markers(std::size_t count) {
        while (markers_.size() < count)
            markers_.push_back(executor_->make_marker());
        std::vector<marker_type*> taken;
        for (std::size_t m = 0; m < count; ++m)
            taken.push_back(&markers_[m]);
        return taken;
    }

private:
    struct pooled_lane {
        lane_kind kind{};
        std::size_t commands = 0;
        lane_type lane;
    };

    lane_type& lane(lane_kind kind, std::size_t commands) {
        const auto fits = std::find_if(lanes_.begin(), lanes_.end(), [&](const pooled_lane& each) {
            return each.kind == kind && each.commands >= commands;
        });
        if (fits != lanes_.end()) return fits->lane;
        // One program alone has what it needs. Where plans differ, by their waits, twice as much ends the growth.
        const bool grows =
            std::any_of(lanes_.begin(), lanes_.end(), [&](const pooled_lane& each) { return each.kind == kind; });
        const auto room = grows ? 2 * commands : commands;
        return lanes_.emplace_back(pooled_lane{kind, room, executor_->open_lane(kind, room)}).lane;
    }

    Executor* executor_;
    // Deques, as programs point to them. Lanes go first, so that nothing uses markers that are gone.
    std::deque<marker_type> markers_;
    std::deque<pooled_lane> lanes_;
};

} // namespace optpipe::execution
