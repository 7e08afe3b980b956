#pragma once

#include "optpipe/execution/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace optpipe::execution {

/// The lanes and markers of one rank, shared by the programs of a run. Lanes and markers stay open until the pool is
/// destroyed. Only the thread that issues may use the pool. The executor must outlive the pool.
template <class Executor> class lane_pool {
public:
    using lane_type = lane_of<Executor>;
    using marker_type = marker_of<Executor>;

    explicit lane_pool(Executor& on) : executor_{&on} {}
    lane_pool(const lane_pool&) = delete;
    lane_pool& operator=(const lane_pool&) = delete;

    /// Returns one lane of each kind in `kinds`. Contract: all kinds differ. `commands` has the number of commands for
    /// which each lane needs room. Opens lanes that are missing. Throws the executor's exception if a lane can't be
    /// opened.
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
        // Lanes opened later get twice the room that they need, so that new lanes are rare.
        const bool grows =
            std::any_of(lanes_.begin(), lanes_.end(), [&](const pooled_lane& each) { return each.kind == kind; });
        const auto room = grows ? 2 * commands : commands;
        return lanes_.emplace_back(pooled_lane{kind, room, executor_->open_lane(kind, room)}).lane;
    }

    Executor* executor_;
    // The containers are deques, because programs point to their elements. Lanes are declared last and thus destroyed
    // first, because they use markers.
    std::deque<marker_type> markers_;
    std::deque<pooled_lane> lanes_;
};

} // namespace optpipe::execution
