#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every schedule of forwards alone. For the makespan, it is the maximum over the
/// ranks of the sum of three times: the least time before a forward of the rank, all its forwards, and the least time
/// from the end of one of them to the end of the step. For the span, it is the time of a rank's forwards, or of one
/// microbatch from the first of the rank's stages to the last.
///
/// It is the optimum if each rank has one stage: equal microbatches that flow through machines in a row take the sum of
/// one microbatch's times, plus the time of the slowest stage for each further microbatch. O(S).
///
/// For problems that aren't plain it is `graph_bound`. In a chain another bound holds as well: the time of one
/// microbatch m through all stages, plus the shortest stage of each other microbatch. Each other microbatch runs before
/// m on the first stage, runs after m on the last stage, or overtakes m in between; in each case, one of its stages
/// adds to the time of m. This bound takes O(S M).
[[nodiscard]] duration forward_bound(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"

#include <algorithm>

namespace optpipe {
namespace detail {

/// The longest path of one microbatch, plus the shortest stage of each other microbatch.
inline duration overtaking_bound(const problem& p) {
    if (!p.graph.is_chain() || p.objective == objective_kind::span) return {};
    duration others{}, most{};
    for (const microbatch m : p.graph.all_microbatches()) {
        auto shortest = duration::unlimited();
        duration path{};
        for (const stage s : p.graph.all_stages()) {
            p.graph.for_each_edge_into(s, [&](const edge& e) { path += p.message_time(e, m); });
            path += p.cost(s, m).forward;
            shortest = std::min(shortest, p.cost(s, m).forward);
        }
        others += shortest;
        most = std::max(most, path - shortest);
    }
    return others + most;
}

} // namespace detail

OPTPIPE_INLINE duration forward_bound(const problem& p) {
    if (!is_plain(p)) return std::max(graph_bound(forward_problem(p)), detail::overtaking_bound(p));
    per_rank<duration> work(p.graph.ranks());
    per_rank<duration> head(p.graph.ranks(), duration::unlimited());
    per_rank<duration> last(p.graph.ranks());
    duration now{};
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        if (!p.is_first(s)) now += p.hop(s.previous(), s);
        head[r] = std::min(head[r], now);
        now += p.costs[s].forward;
        last[r] = std::max(last[r], now);
        work[r] += static_cast<double>(p.graph.microbatches()) * p.costs[s].forward;
    }
    // `now` is the time of one microbatch through all stages; the time after the last stage of a rank is the rank's
    // tail.
    duration bound{};
    for (const rank r : p.graph.all_ranks()) {
        if (head[r].is_unlimited()) continue; // no stage
        bound = p.objective == objective_kind::span ? std::max({bound, work[r], last[r] - head[r]})
                                                    : std::max(bound, head[r] + work[r] + (now - last[r]));
    }
    return p.objective == objective_kind::span ? bound : std::max(bound, now);
}

} // namespace optpipe
#endif
