#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// How weight gradients are inserted between the forwards and input gradients of a rank.
struct weight_filling {
    /// A weight gradient is inserted into a gap only if at least this share of its duration, from 0 to 1, fits.
    double share = 1.0;
    /// Whether a rank idles in a gap that is shorter than the weight gradient, unless the rank would then have idled
    /// longer than every other rank.
    bool spare_the_idle = false;
    friend constexpr bool operator==(const weight_filling&, const weight_filling&) = default;
};

/// Simulates lanes of forwards and input gradients, and inserts the weight gradients of each rank in FIFO order. A
/// weight gradient is inserted where the rank waits for an input, or needs the memory that the weight gradient frees.
template <pipeline_graph Graph> class weight_filler {
public:
    using budget_type = per_rank<memory_size, Graph::rank_extent>;

    /// Keeps references to the problem and to the budget of each rank.
    constexpr weight_filler(const basic_problem<Graph>& p, const budget_type& budget)
        : p_{p}, budget_{budget}, own_{p, budget} {}

    /// The earliest times of the filled lanes, valid until the next call. Operations are listed in an order that
    /// respects all dependencies. Refused (`over_memory`) if a rank can't stay within its budget.
    constexpr outcome<const basic_schedule<Graph>*> run(const compute_lanes& lanes, weight_filling how = {}) {
        how_ = how;
        own_.clear();
        for (const rank r : p_.graph.all_ranks())
            for (std::size_t i = 0; i < lanes[r].size(); ++i)
                if (lanes[r][i].kind == operation_kind::backward_weight) own_[r].named_to = i;
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : p_.graph.all_ranks())
                for (auto& own = own_[r]; own.next < lanes[r].size(); ++own.next, moved = true) {
                    const auto& op = lanes[r][own.next];
                    if (op.kind == operation_kind::backward_weight) {
                        if (own.has_weight()) own_.put_weight(r);
                        own.named_from = std::min(own.named_from, own.next);
                        continue;
                    }
                    const auto ready = own_.arrival(op);
                    if (ready.is_unlimited()) break;
                    if (!put(r, op, ready))
                        return detail::lane_over_memory(r, own.held + own_.costs_of(op).acquired, budget_[r]);
                }
        }
        for (const rank r : p_.graph.all_ranks()) {
            if (own_[r].next < lanes[r].size()) return detail::lanes_in_a_cycle(r, own_[r].next);
            own_.put_all_weights(r);
        }
        return &own_.made();
    }

private:
    struct state : detail::lane_builder {
        std::size_t next = 0;
        /// The positions of the first and the last weight gradient that the lane contains.
        std::size_t named_from = dynamic;
        std::size_t named_to = 0;
    };

    constexpr duration spare(const state& own) const {
        return how_.spare_the_idle ? own_.longest_idle() - own.idle : duration{};
    }
    constexpr bool put(rank r, const operation& op, duration ready) {
        auto& own = own_[r];
        const bool named = own.next > own.named_from && own.next < own.named_to;
        while (own.has_weight() && !named) {
            const auto length = own_.costs_of(own.first_weight()).length;
            const auto gap = ready - own.clock;
            if (gap < how_.share * length || (gap < length && gap <= spare(own)) || gap <= duration{}) break;
            own_.put_weight(r);
        }
        const auto costs = own_.costs_of(op);
        if (!own_.make_room(r, costs.acquired)) return false;
        own_.put(r, op, costs, ready);
        return true;
    }

    const basic_problem<Graph>& p_;
    const budget_type& budget_;
    weight_filling how_{};
    detail::lane_builders<Graph, state> own_;
};

/// The order that runs each rank's forwards and input gradients as given. Weight gradients are inserted where the rank
/// would otherwise wait for an input or exceed its budget. Refused (`over_memory`) if a rank can't stay within its
/// budget.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>>
fill_with_weights(const basic_problem<Graph>& p, const compute_lanes& lanes,
                  const per_rank<memory_size, Graph::rank_extent>& budget, weight_filling how = {}) {
    weight_filler<Graph> filler{p, budget};
    const auto timed = filler.run(lanes, how);
    if (!timed) return timed.why();
    return listed_order(**timed);
}

} // namespace optpipe
