#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <utility>

namespace optpipe {

namespace detail {

/// Calls `visit(storage_candidate)` for each storage option in `options_of(stage)`, stage by stage.
template <pipeline_graph Graph, class OptionsOf, class Visit>
constexpr void for_each_candidate(const basic_problem<Graph>& p, const OptionsOf& options_of, const Visit& visit) {
    const auto paths = paths_of(p);
    const auto places = lifespan_places(p, paths);
    const auto stages = stages_by_rank(p.graph);
    for (const stage s : p.graph.all_stages())
        for (const auto& option : options_of(s))
            visit(storage_candidate{s, p.costs[s], option, paths.lifespan[s], places[s], stages[p.rank_of(s)].size()});
}

/// Gives each stage the options in `options_of(stage)` that the policy allows. A stage without an allowed option keeps
/// its stashes on the device.
template <pipeline_graph Graph, class Policy, class OptionsOf>
constexpr basic_problem<Graph> with_allowed_storage(basic_problem<Graph> p, const Policy& policy,
                                                    const OptionsOf& options_of) {
    per_stage<storage_list<false>, Graph::stage_extent> allowed(p.graph.stages());
    for_each_candidate(p, options_of, [&](const storage_candidate& c) {
        if (policy.allows(c)) allowed[c.stage].push_back(c.option);
    });
    for (const stage s : p.graph.all_stages()) {
        if (allowed[s].empty()) allowed[s].push_back(keep_stash(p.costs[s]));
        p.set_storage(s, allowed[s]);
    }
    return p;
}

} // namespace detail

/// For each stage, whether the policy forbids, permits or requires offloading. The decision is `forbid` for stages that
/// can't be offloaded.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr per_stage<offload_decision, Graph::stage_extent> decisions_of(const basic_problem<Graph>& p,
                                                                                      const Policy& policy) {
    static_assert(check_storage_policy<Policy>());
    per_stage<unsigned char, Graph::stage_extent> may_keep(p.graph.stages());
    auto may_offload = may_keep;
    detail::for_each_candidate(
        p, [&](stage s) { return p.storage[s]; },
        [&](const storage_candidate& c) {
            if (!policy.allows(c)) return;
            if (keeps_all(c.option)) may_keep[c.stage] = 1;
            if (offloads_all(c.option)) may_offload[c.stage] = 1;
        });
    per_stage<offload_decision, Graph::stage_extent> decisions(p.graph.stages(), offload_decision::forbid);
    for (const stage s : p.graph.all_stages())
        if (may_offload[s]) decisions[s] = may_keep[s] ? offload_decision::permit : offload_decision::require;
    return decisions;
}

/// Removes the storage options that the policy doesn't allow.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr basic_problem<Graph> restrict_storage(const basic_problem<Graph>& p, const Policy& policy) {
    static_assert(check_storage_policy<Policy>());
    return detail::with_allowed_storage(p, policy, [&](stage s) { return p.storage[s]; });
}

/// Makes a problem from the pipeline's shape, the costs of a microbatch, and a policy for storing stashes. The policy
/// chooses from the model's storage options. A model without storage options has the options that its costs describe.
/// By default, the planner decides for each stash whether to offload it. `limit` is the device memory of each rank for
/// stashes. `limit` doesn't include weights, gradients and optimizer state. Uses the members `p2p()` (time between any
/// two ranks), `time_unit` and `memory_unit` of a model that has them. All remaining fields of the problem keep their
/// defaults, and can be changed.
template <pipeline_graph Graph, class Model, class Policy = offload::solver_decides>
[[nodiscard]] constexpr basic_problem<Graph> make_problem(const Graph& g, const Model& model,
                                                          memory_size limit = memory_size::unlimited(),
                                                          const Policy& policy = {}) {
    static_assert(check_memory_model<Model>() && check_storage_of<Model>());
    static_assert(check_storage_policy<Policy>());
    basic_problem<Graph> p{g, costs_of(model, g)};
    for (auto& l : p.memory_limit)
        l = limit;
    if constexpr (requires { model.p2p(); }) p.p2p = hop_times<Graph::rank_extent>{model.p2p()};
    if constexpr (requires { Model::time_unit; }) p.time_unit = Model::time_unit;
    if constexpr (requires { Model::memory_unit; }) p.memory_unit = Model::memory_unit;
    if constexpr (has_storage<Model>)
        return detail::with_allowed_storage(std::move(p), policy,
                                            [&](stage s) { return model.storage(s, g.stages()); });
    else
        return restrict_storage(p, policy);
}

} // namespace optpipe
