#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every schedule of forwards alone. `graph_bound` gives the work of one rank plus
/// the least times before and after this work. For a chain with one stage per rank and equal microbatches, the bound is
/// the optimum. The first microbatch takes the time of all stages, and each further one the time of the slowest stage.
///
/// In any chain, two further bounds hold. The makespan is at least the time of any one microbatch through all stages,
/// plus the shortest stage time of every other microbatch. Proof: every other microbatch runs before the chosen one on
/// the first stage, runs after it on the last stage, or overtakes it on a stage. If messages differ, a microbatch may
/// also overtake in transit. For this bound, a message thus counts at most as the shortest time in which any microbatch
/// runs on the sending stage and arrives. The span is at least the time of one microbatch between a rank's first and
/// last stages. O(n log n) for n forwards.
[[nodiscard]] duration forward_bound(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"

#include <algorithm>

namespace optpipe {
namespace detail {

/// For each stage of a chain, the shortest time in which a microbatch arrives there, from the start of its forward on
/// the previous stage. A message that takes no longer can't be overtaken in transit.
inline per_stage<duration> shortest_passages(const problem& p) {
    per_stage<duration> shortest(p.graph.stages(), duration::unlimited());
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_into(s, [&](const edge& e) {
            for (const microbatch m : p.graph.all_microbatches())
                shortest[s] = std::min(shortest[s], p.cost(e.from, m).forward + p.message_time(e, m));
        });
    return shortest;
}

/// A lower bound for a chain, as described for `forward_bound`. Contract: `p` is a chain.
inline duration chain_bound(const problem& p) {
    const auto passage = shortest_passages(p);
    duration others{}, most{}, alone{}, within_rank{};
    for (const microbatch m : p.graph.all_microbatches()) {
        auto shortest = duration::unlimited();
        duration path{}, saved{};
        per_rank<duration> first(p.graph.ranks(), duration::unlimited());
        for (const stage s : p.graph.all_stages()) {
            p.graph.for_each_edge_into(s, [&](const edge& e) {
                const auto message = p.message_time(e, m);
                path += message;
                saved += message - std::min(message, passage[s]);
            });
            auto& start = first[p.rank_of(s)];
            start = std::min(start, path);
            path += p.cost(s, m).forward;
            within_rank = std::max(within_rank, path - start);
            shortest = std::min(shortest, p.cost(s, m).forward);
        }
        others += shortest;
        alone = std::max(alone, path);
        most = std::max(most, path - saved - shortest);
    }
    return p.objective == objective_kind::span ? within_rank : std::max(alone, others + most);
}

} // namespace detail

OPTPIPE_INLINE duration forward_bound(const problem& p) {
    const auto bound = graph_bound(forward_problem(p));
    return p.graph.is_chain() ? std::max(bound, detail::chain_bound(p)) : bound;
}

} // namespace optpipe
#endif
