#pragma once

#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"
#include "optpipe/planner/local_search/parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// A critical path is a chain of operations without gaps from the start to a given operation. The given operation can't
/// end earlier unless the chain changes.
class critical_path {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;

    critical_path(const lane_orders& lanes, const lane_times& times, const annealing_parameters& with = {})
        : p_{&lanes.flat()}, lanes_{&lanes}, times_{&times}, longest_{with.longest_path * p_->size()},
          far_back_{with.farthest_back * p_->mean_duration()} {}

    void find(id last) {
        chain_.clear();
        for (id i = last; i != none && chain_.size() < longest_; i = predecessor(i))
            chain_.push_back(i);
    }
    /// The operations of the path, from the last to the first.
    [[nodiscard]] const std::vector<id>& operations() const { return chain_; }
    /// A block of the path, as a range of indices into the path. A block has consecutive computations of the path on
    /// one rank, or consecutive transfers.
    struct block {
        std::size_t last = 0; ///< the index of the last operation, the lowest index of the block
        std::size_t first = 0;
    };
    [[nodiscard]] block block_around(std::size_t place) const {
        const auto& own = lanes_->facts(chain_[place]);
        const auto is_part = [&](std::size_t other) {
            const auto& f = lanes_->facts(chain_[other]);
            return f.rank == own.rank && is_transfer(f.kind) == is_transfer(own.kind);
        };
        block b{place, place};
        while (b.last > 0 && is_part(b.last - 1))
            --b.last;
        while (b.first + 1 < chain_.size() && is_part(b.first + 1))
            ++b.first;
        return b;
    }

private:
    bool binds(id before, double lag, id i) const {
        return before != none && times_->end(before) + lag >= times_->start(i);
    }
    /// The operation whose end determines the start of `i`, or none if `i` starts at 0.
    id predecessor(id i) const {
        const auto& f = lanes_->facts(i);
        for (const auto& in : p_->neighbours(f.inputs))
            if (binds(i + in.difference, in.delay, i)) return i + in.difference;
        // The loop over the lane, below, finds the inputs that are computations on the same stage.
        if (const id from = i + f.own_input;
            from != i && (is_transfer(f.kind) || is_transfer(lanes_->facts(from).kind)))
            if (binds(from, 0.0, i)) return from;
        if (f.channel != none)
            if (const id before = lanes_->link_previous(i); binds(before, 0.0, i)) return before;
        // Operation `i` starts when an earlier operation of the lane ends or acquires memory.
        const bool transfer = is_transfer(f.kind);
        for (id here = lanes_->previous(lanes_->position(i), f.rank); here >= lanes_->begin(f.rank);
             here = lanes_->previous(here, f.rank)) {
            const id before = (*lanes_)[here];
            const auto& g = lanes_->facts(before);
            if (times_->end(before) == times_->start(i)) return before;
            if (f.acquired > 0.0 && g.acquired > 0.0 && times_->start(before) == times_->start(i)) return before;
            if (!p_->offloads() && !transfer) return none;
            if (times_->end(before) + far_back_ < times_->start(i)) return none;
        }
        return none;
    }

    const flat_problem* p_;
    const lane_orders* lanes_;
    const lane_times* times_;
    std::size_t longest_;
    double far_back_;
    std::vector<id> chain_;
};

} // namespace optpipe::detail
