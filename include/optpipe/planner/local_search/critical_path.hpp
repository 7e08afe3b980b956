#pragma once

#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The operations of a chain that leads without a gap from the begin to a given operation: what has to change if that
/// one is to end sooner.
class critical_path {
public:
    using id = flat_pipeline::id;
    static constexpr id none = flat_pipeline::none;

    critical_path(const lane_orders& lanes, const lane_times& times)
        : p_{&lanes.pipeline()}, lanes_{&lanes}, times_{&times} {}

    void find(id last) {
        chain_.clear();
        const std::size_t most = 8 * p_->size();
        for (id i = last; i != none && chain_.size() < most; i = reason(i))
            chain_.push_back(i);
    }
    /// From the last to the first.
    [[nodiscard]] const std::vector<id>& operations() const { return chain_; }

private:
    bool binds(id before, double lag, id i) const {
        return before != none && times_->end(before) + lag >= times_->start(i);
    }
    id input(id i) const {
        const auto& f = p_->facts(i);
        if (f.kind == operation_kind::offload) return p_->sibling(i, operation_kind::forward);
        if (f.kind == operation_kind::reload) return p_->sibling(i, operation_kind::offload);
        if (!f.has_input) return none;
        return f.kind == operation_kind::forward ? p_->on_stage(i, -1) : lanes_->gradient(p_->on_stage(i, 1));
    }
    /// What it waited for last; none if it starts at the begin.
    id reason(id i) const {
        const auto& f = p_->facts(i);
        if (const id from = input(i); binds(from, f.hop, i)) return from;
        if (is_gradient(f.kind) && lanes_->away(i))
            if (const id back = p_->sibling(i, operation_kind::reload); binds(back, 0.0, i)) return back;
        if (f.channel != none)
            if (const id before = lanes_->link_previous(i); binds(before, 0.0, i)) return before;
        // The lane: what ran before it, or freed memory for it, or took memory before it.
        const bool transfer = is_transfer(f.kind);
        for (id here = lanes_->previous(lanes_->position(i), f.rank); here >= lanes_->begin(f.rank);
             here = lanes_->previous(here, f.rank)) {
            const id before = (*lanes_)[here];
            const auto& g = p_->facts(before);
            if (times_->end(before) == times_->start(i)) return before;
            if (f.acquired > 0.0 && g.acquired > 0.0 && times_->start(before) == times_->start(i)) return before;
            if (!p_->travels() && !transfer) return none;
            if (times_->end(before) + p_->mean_duration() * 16.0 < times_->start(i)) return none;
        }
        return none;
    }

    const flat_pipeline* p_;
    const lane_orders* lanes_;
    const lane_times* times_;
    std::vector<id> chain_;
};

} // namespace optpipe::detail
