#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every schedule of forwards alone. The bound is `graph_bound`: the work of one rank
/// plus the least times before and after this work. For a chain with one stage per rank and equal microbatches, the
/// bound is the optimum: the time of one microbatch through all stages, plus the time of the slowest stage for each
/// further microbatch.
///
/// In any chain, two further bounds hold. The makespan is at least the time of a chosen microbatch through all stages,
/// plus the shortest stage time of every other microbatch. Every other microbatch runs before the chosen one on the
/// first stage, runs after the chosen one on the last stage, or overtakes the chosen one on some stage, and adds its
/// time there. The span is at least the time of one microbatch from the first of a rank's stages to the last. O(n log
/// n) for n forwards.
[[nodiscard]] duration forward_bound(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"

#include <algorithm>

namespace optpipe {
namespace detail {

/// A lower bound for a chain. The bound on the makespan is the longest path of one microbatch plus the shortest stage
/// time of each other microbatch. The bound on the span is the longest path of one microbatch between stages of the
/// same rank. Contract: `p` is a chain.
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
