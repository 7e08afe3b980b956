#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace optpipe {

/// What a policy says of every stage. Stages that can't be offloaded are forbidden.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr per_stage<offload_decision, Graph::stage_extent> decisions_of(const basic_problem<Graph>& p,
                                                                                      const Policy& policy) {
    static_assert(check_offload_policy<Policy>());
    per_stage<offload_decision, Graph::stage_extent> decisions(p.graph.stages(), offload_decision::forbid);
    const auto paths = paths_of(p);
    const auto places = lifespan_places(p, paths);
    const auto stages = stages_by_rank(p.graph);
    for (const stage s : p.graph.all_stages()) {
        const auto& costs = p.costs[s];
        if (!costs.transfer) continue;
        decisions[s] = policy.decide({s, paths.lifespan[s], costs.transfer->offload + costs.transfer->reload,
                                      costs.activation, places[s], stages[p.rank_of(s)].size()});
    }
    return decisions;
}

/// Takes away the transfers that the policy forbids.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr basic_problem<Graph> restrict_offloading(basic_problem<Graph> p, const Policy& policy) {
    const auto decisions = decisions_of(p, policy);
    for (const stage s : p.graph.all_stages())
        // Not reset(): what it leaves can't be copied in a constant expression with clang 14.
        if (decisions[s] == offload_decision::forbid) p.costs[s].transfer = std::optional<transfer_times>{};
    return p;
}

/// A problem from its three descriptions: the shape, what a microbatch costs, and what may be offloaded. Every rank
/// gets `limit`; other fields keep their defaults and are public.
template <pipeline_graph Graph, class Model, class Policy = offload::solver_decides>
[[nodiscard]] constexpr basic_problem<Graph> make_problem(const Graph& g, const Model& model,
                                                          memory_size limit = memory_size::unlimited(),
                                                          const Policy& policy = {}) {
    static_assert(check_memory_model<Model>() && check_offload_policy<Policy>());
    basic_problem<Graph> p{g, costs_of(model, g)};
    for (auto& l : p.memory_limit)
        l = limit;
    return restrict_offloading(std::move(p), policy);
}

} // namespace optpipe
