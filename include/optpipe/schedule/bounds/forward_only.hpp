#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every schedule of forwards alone: `graph_bound`, which counts the least time
/// before a rank's forwards, all of them, and the least time after them. It is the optimum if each rank has one stage
/// of a chain: equal microbatches that flow through machines in a row take the sum of one microbatch's times, plus the
/// time of the slowest stage for each further microbatch.
///
/// In a chain two other bounds hold as well. For the makespan: the time of one microbatch m through all stages, plus the
/// shortest stage of each other microbatch. Each other microbatch runs before m on the first stage, runs after m on the
/// last stage, or overtakes m in between; in each case, one of its stages adds to the time of m. For the span: the time
/// of one microbatch from the first of a rank's stages to the last. Takes O(S M log(S M)).
[[nodiscard]] duration forward_bound(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"

#include <algorithm>

namespace optpipe {
namespace detail {

/// For the makespan, the longest path of one microbatch, plus the shortest stage of each other microbatch; for the
/// span, the longest path of one microbatch between stages of the same rank. Contract: a chain.
inline duration chain_bound(const problem& p) {
    duration others{}, most{}, within_rank{};
    for (const microbatch m : p.graph.all_microbatches()) {
        auto shortest = duration::unlimited();
        duration path{};
        per_rank<duration> first(p.graph.ranks(), duration::unlimited());
        for (const stage s : p.graph.all_stages()) {
            p.graph.for_each_edge_into(s, [&](const edge& e) { path += p.message_time(e, m); });
            auto& start = first[p.rank_of(s)];
            start = std::min(start, path);
            path += p.cost(s, m).forward;
            within_rank = std::max(within_rank, path - start);
            shortest = std::min(shortest, p.cost(s, m).forward);
        }
        others += shortest;
        most = std::max(most, path - shortest);
    }
    return p.objective == objective_kind::span ? within_rank : others + most;
}

} // namespace detail

OPTPIPE_INLINE duration forward_bound(const problem& p) {
    const auto bound = graph_bound(forward_problem(p));
    return p.graph.is_chain() ? std::max(bound, detail::chain_bound(p)) : bound;
}

} // namespace optpipe
#endif
