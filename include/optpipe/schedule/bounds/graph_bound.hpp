#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every valid schedule, for any graph, microbatches and pairs. The bound is
/// Carlier's bound on one rank's operations minus the most time that pairs save (`pair_bound`). For the objective
/// `span`, only the rank's work counts. Memory only limits the number of forwards before the first backward, on ranks
/// with pairs. Takes O(n log n) for n operations. With pairs and unequal microbatches, takes O(n³) if no rank has more
/// than 256 forwards or backwards.
[[nodiscard]] duration graph_bound(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/chain_paths.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/one_machine.hpp"
#include "optpipe/schedule/bounds/pair_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The operations of a device, as jobs for one machine.
inline std::vector<machine_job> jobs_of_device(const chain_system& c, const chain_paths& paths, std::size_t device) {
    std::vector<machine_job> jobs;
    for (const std::size_t chain : c.devices[device].chains)
        jobs.insert(jobs.end(), c.count[chain],
                    {duration{paths.head(chain)}, duration{c.length[chain]}, duration{paths.tail(chain)}});
    return jobs;
}

} // namespace detail

OPTPIPE_INLINE duration graph_bound(const problem& p) {
    duration best{};
    detail::chain_maker chains{p};
    if (!p.overlaps.empty()) chains.share_chains();
    const auto& c = chains.made();
    const detail::chain_paths paths{c};
    for (const rank r : p.graph.all_ranks()) {
        if (p.overlaps.empty()) {
            best = std::max(best, p.load(r));
            if (p.objective == objective_kind::makespan)
                best = std::max(best, one_machine_bound(detail::jobs_of_device(c, paths, r.position())));
            continue;
        }
        const detail::pair_bound with_pairs{p, chains, paths, r};
        best = std::max(best, with_pairs.work());
        if (p.objective == objective_kind::makespan) best = std::max(best, with_pairs.makespan());
    }
    return best;
}

} // namespace optpipe
#endif
