#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/graph_paths.hpp"
#include "optpipe/schedule/bounds/one_machine.hpp"
#include "optpipe/schedule/bounds/pair_bound.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The operations of a rank, as jobs for one machine.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<machine_job> jobs_of_rank(const basic_problem<Graph>& p, rank r,
                                                    const graph_paths<Graph>& paths) {
    std::vector<machine_job> jobs;
    const auto add = [&](const operation& op) { jobs.push_back({paths.head(op), paths.length(op), paths.tail(op)}); };
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        for (const microbatch m : p.graph.all_microbatches()) {
            add(forward(s, m));
            if (!paths.has_gradient(s)) continue;
            const auto back = paths.gradient(s, m);
            add(back);
            if (back.kind == operation_kind::backward_input && p.costs[s].gradients == gradient_kind::full)
                jobs.push_back({paths.head(back) + paths.length(back), p.cost(s, m).backward_weight, {}});
        }
    }
    return jobs;
}

} // namespace detail

/// A lower bound on the objective of every valid schedule, for any graph, microbatches and pairs. The bound is the work
/// of one rank, with the longest paths before and after each operation (Carlier's bound for one machine), minus the
/// most time that the rank's pairs can save (`pair_bound`). For the objective `span`, only the rank's work counts.
/// Memory is ignored, except on a rank with pairs, where it limits the number of forwards before the first backward.
/// Takes O(n log n) for n operations. With pairs and unequal microbatches, takes O(n³) if no rank has more than 256
/// forwards or backwards.
template <pipeline_graph Graph> [[nodiscard]] duration graph_bound(const basic_problem<Graph>& p) {
    duration best{};
    const detail::graph_paths<Graph> paths{p};
    for (const rank r : p.graph.all_ranks()) {
        if (p.overlaps.empty()) {
            best = std::max(best, p.load(r));
            if (p.objective == objective_kind::makespan)
                best = std::max(best, one_machine_bound(detail::jobs_of_rank(p, r, paths)));
            continue;
        }
        const detail::pair_bound<Graph> with_pairs{p, paths, r};
        best = std::max(best, with_pairs.work());
        if (p.objective == objective_kind::makespan) best = std::max(best, with_pairs.makespan());
    }
    return best;
}

} // namespace optpipe
