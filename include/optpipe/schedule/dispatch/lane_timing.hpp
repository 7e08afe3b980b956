#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {
namespace detail {

/// Refuses lanes whose operations wait for each other in a cycle. The first `position` operations of rank `r` are done.
[[nodiscard]] constexpr refusal lanes_in_a_cycle(rank r, std::size_t position) {
    refusal why;
    why.reason = refusal_reason::not_executable;
    why.sentence = "the ranks wait for each other in a cycle";
    why.rank = r;
    why.position = position;
    return why;
}
/// Refuses an operation that needs more memory than its rank has.
[[nodiscard]] constexpr refusal lane_over_memory(rank r, memory_size needed, memory_size limit) {
    refusal why;
    why.reason = refusal_reason::over_memory;
    why.rank = r;
    why.needed = needed;
    why.limit = limit;
    return why;
}

} // namespace detail

/// How weight gradients are inserted between the forwards and input gradients of a rank.
struct weight_filling {
    /// A weight gradient goes into a gap if at least this share (0 to 1) of its duration fits.
    double share = 1.0;
    /// Whether a rank leaves a gap shorter than the weight gradient idle, if another rank idles at least as long.
    bool spare_the_idle = false;
    friend constexpr bool operator==(const weight_filling&, const weight_filling&) = default;
};

/// Times the compute lanes of a step without transfers. A returned schedule is valid until the next call, and lists
/// operations after their dependencies. Refuses lanes that wait for each other in a cycle (`not_executable`) or exceed
/// a rank's budget (`over_memory`). Contract: the problem is plain, no backward recomputes, and a B runs as one
/// operation (`full_backward`).
template <pipeline_graph Graph> class lane_timer {
public:
    using budget_type = per_rank<memory_size, Graph::rank_extent>;
    using result_type = outcome<const basic_schedule<Graph>*>;

    /// Keeps references to the problem and to the budget of each rank.
    constexpr lane_timer(const basic_problem<Graph>& p, const budget_type& budget)
        : p_{p}, budget_{budget}, own_{p, budget} {}

    /// The earliest times of lanes that contain each computation once. The times are those of `simulate` for the lanes
    /// merged by `interleave`.
    constexpr result_type run(const compute_lanes& lanes) {
        own_.clear();
        const auto arrival = [this](const operation& op) { return own_.arrival(op); };
        return run_with(lanes, arrival, [this](rank r, const operation& op, duration ready) {
            const auto costs = own_.costs_of(op);
            const bool fits = own_[r].held + costs.acquired <= own_.limit(r);
            if (fits) own_.put(r, op, costs, ready);
            return fits;
        });
    }
    /// The earliest times of lanes of forwards and input gradients. Each rank's weight gradients are inserted in FIFO
    /// order. A weight gradient is inserted where the rank waits for an input or for memory.
    constexpr result_type fill(const compute_lanes& lanes, weight_filling how = {}) {
        how_ = how;
        own_.clear();
        for (const rank r : p_.graph.all_ranks())
            for (std::size_t i = 0; i < lanes[r].size(); ++i)
                if (lanes[r][i].kind == operation_kind::backward_weight) own_[r].named_to = i;
        // A weight gradient that a lane contains only marks a place.
        const auto arrival = [this](const operation& op) {
            return op.kind == operation_kind::backward_weight ? duration{} : own_.arrival(op);
        };
        const auto made = run_with(lanes, arrival, [this](rank r, const operation& op, duration ready) {
            return put_after_weights(r, op, ready);
        });
        if (made)
            for (const rank r : p_.graph.all_ranks())
                own_.put_all_weights(r);
        return made;
    }

private:
    struct state : detail::lane_builder {
        std::size_t next = 0;
        /// The positions of the first and the last weight gradient that the lane contains.
        std::size_t named_from = dynamic;
        std::size_t named_to = 0;
    };

    /// `arrival(operation)` is the arrival of the operation's inputs; unlimited while unknown. `put(rank, operation,
    /// ready)` appends an operation whose inputs are ready at `ready`. `put` returns false if the operation doesn't fit
    /// in memory.
    template <class Arrival, class Put>
    constexpr result_type run_with(const compute_lanes& lanes, const Arrival& arrival, const Put& put) {
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : p_.graph.all_ranks())
                for (auto& lane = own_[r]; lane.next < lanes[r].size(); ++lane.next, moved = true) {
                    const auto& op = lanes[r][lane.next];
                    const auto ready = arrival(op);
                    if (ready.is_unlimited()) break;
                    if (!put(r, op, ready))
                        return detail::lane_over_memory(r, lane.held + own_.costs_of(op).acquired, budget_[r]);
                }
        }
        for (const rank r : p_.graph.all_ranks())
            if (own_[r].next < lanes[r].size()) return detail::lanes_in_a_cycle(r, own_[r].next);
        return &own_.made();
    }
    constexpr duration spare(const state& own) const {
        return how_.spare_the_idle ? own_.longest_idle() - own.idle : duration{};
    }
    constexpr bool put_after_weights(rank r, const operation& op, duration ready) {
        auto& own = own_[r];
        if (op.kind == operation_kind::backward_weight) {
            if (own.has_weight()) own_.put_weight(r);
            own.named_from = std::min(own.named_from, own.next);
            return true;
        }
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

/// The order of the given forwards and input gradients with inserted weight gradients. A weight gradient runs where the
/// rank waits for an input or lacks memory (`lane_timer::fill`).
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>>
fill_with_weights(const basic_problem<Graph>& p, const compute_lanes& lanes,
                  const per_rank<memory_size, Graph::rank_extent>& budget, weight_filling how = {}) {
    lane_timer<Graph> timer{p, budget};
    const auto timed = timer.fill(lanes, how);
    if (!timed) return timed.why();
    return listed_order(**timed);
}

/// The compute operations of an order or a schedule, rank by rank, as listed.
template <pipeline_graph Graph>
[[nodiscard]] constexpr compute_lanes lanes_of(const basic_problem<Graph>& p, const basic_order<Graph>& o) {
    compute_lanes lanes(p.graph.ranks());
    for (const auto& op : o.operations)
        if (!is_transfer(op.kind)) lanes[p.rank_of(op.stage)].push_back(op);
    return lanes;
}
template <pipeline_graph Graph>
[[nodiscard]] constexpr compute_lanes lanes_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    return lanes_of(p, listed_order(s));
}

} // namespace optpipe
