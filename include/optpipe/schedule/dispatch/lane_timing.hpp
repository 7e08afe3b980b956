#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

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
/// Refuses an operation that needs more memory than its rank may hold.
[[nodiscard]] constexpr refusal lane_over_memory(rank r, memory_size needed, memory_size limit) {
    refusal why;
    why.reason = refusal_reason::over_memory;
    why.rank = r;
    why.needed = needed;
    why.limit = limit;
    return why;
}

} // namespace detail

/// Times lanes that contain all computations of a step without transfers. The times are those of `simulate` for the
/// lanes merged by `interleave`. Contract: the problem is plain, each computation is in its lane once, no backward
/// recomputes by itself, and a B runs as one operation (`full_backward`).
template <pipeline_graph Graph> class lane_timer {
public:
    /// Keeps a reference to the problem.
    constexpr explicit lane_timer(const basic_problem<Graph>& p) : p_{p}, own_{p, p.memory_limit} {}

    /// The schedule with the earliest times, valid until the next call. Operations are listed in an order that respects
    /// all dependencies. Refused if the lanes wait for each other in a cycle (`not_executable`), or if a rank exceeds
    /// its memory limit.
    constexpr outcome<const basic_schedule<Graph>*> run(const compute_lanes& lanes) {
        own_.clear();
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : p_.graph.all_ranks())
                for (auto& lane = own_[r]; lane.next < lanes[r].size(); ++lane.next, moved = true) {
                    const auto& op = lanes[r][lane.next];
                    const auto ready = own_.arrival(op);
                    if (ready.is_unlimited()) break;
                    const auto costs = own_.costs_of(op);
                    if (const auto needed = lane.held + costs.acquired; needed > own_.limit(r))
                        return detail::lane_over_memory(r, needed, p_.memory_limit[r]);
                    own_.put(r, op, costs, ready);
                }
        }
        for (const rank r : p_.graph.all_ranks())
            if (own_[r].next < lanes[r].size()) return detail::lanes_in_a_cycle(r, own_[r].next);
        return &own_.made();
    }

private:
    struct state : detail::lane_builder {
        std::size_t next = 0;
    };

    const basic_problem<Graph>& p_;
    detail::lane_builders<Graph, state> own_;
};

/// The compute operations of an order or a schedule, rank by rank in the order in which they are listed.
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
