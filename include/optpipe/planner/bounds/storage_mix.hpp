#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"

namespace optpipe {

/// A lower bound on the objective of every valid schedule. The result is at least `known`. There is one linear program
/// (`storage_mix_program`) per rank, and one per group of ranks that share a link. The result is the largest objective
/// that one of the linear programs refutes. Takes milliseconds to a second. `work` is the approximate number of matrix
/// and knapsack entries that one linear program may read. Contract: the problem is plain, and `validate` accepts it.
///
/// If `stop` returns true, the result is the largest objective refuted by then. Deterministic if `stop` never returns
/// true.
[[nodiscard]] duration storage_mix_bound(const problem& p, duration known, stop_check stop = {}, double work = 1.5e8);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/planner/bounds/storage_activities.hpp"
#include "optpipe/planner/bounds/storage_mix_program.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Whether no memory limit forces a choice among the options of rank `r`. Without a choice, the linear program gives no
/// better bound than the rank's work.
inline bool is_free_of_choice(const problem& p, rank r) {
    if (!p.memory_limit[r].is_unlimited()) return false;
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == r && !is_described_by_costs(p.costs[s], p.storage[s])) return false;
    return true;
}

/// Whether a stash of rank `r` may have to be offloaded.
inline bool may_offload(const problem& p, rank r) {
    if (p.memory_limit[r].is_unlimited()) return false;
    for (const stage s : p.graph.all_stages())
        for (std::size_t i = 0; p.rank_of(s) == r && i < p.storage_options(s); ++i)
            if (p.storage_of(s, i).offloads()) return true;
    return false;
}

/// A list of groups of ranks. Each rank with a choice has a group of its own. The groups of the last ranks come first,
/// because their epilogues bound most problems. After the groups of one rank, there is one group for each link with at
/// least two ranks that may offload: these ranks. If the objective is the span, there are no groups for links: windows
/// of ranks begin at different times.
inline std::vector<std::vector<rank>> storage_mix_groups(const problem& p) {
    std::vector<std::vector<rank>> groups;
    for (std::size_t i = p.graph.ranks(); i-- > 0;)
        if (!is_free_of_choice(p, rank{i})) groups.push_back({rank{i}});
    if (p.objective == objective_kind::span) return groups;
    for (auto& ranks : ranks_by_link(p.transfer)) {
        std::erase_if(ranks, [&](rank r) { return !may_offload(p, r); });
        if (ranks.size() >= 2) groups.push_back(std::move(ranks));
    }
    return groups;
}

} // namespace detail

OPTPIPE_INLINE duration storage_mix_bound(const problem& p, duration known, stop_check stop, double work) {
    if (known.is_unlimited() || known <= duration{}) return known;
    const auto relaxed = without_storage(p, storage_relaxation::smallest_rest);
    const bool span = p.objective == objective_kind::span;
    const bool half_duplex = shares_channel(p.transfer);
    const detail::copy_rules rules{shares_engine(p.transfer) || half_duplex, half_duplex};
    const auto step = time_windows<any_graph>::step(relaxed);
    for (const auto& ranks : detail::storage_mix_groups(p)) {
        if (stop()) break;
        detail::group_needs needs;
        for (const rank r : ranks)
            detail::add_needs(needs, p, relaxed, r, span ? time_windows<any_graph>::of_rank(relaxed, r) : step);
        if (needs.options.empty()) continue;
        detail::storage_mix_program program{needs, p.graph.microbatches(), known.value(), rules};
        known = std::max(known, duration{program.solve(work, stop)});
    }
    return known;
}

} // namespace optpipe
#endif
