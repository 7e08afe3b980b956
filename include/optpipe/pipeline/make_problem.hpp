#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <cstddef>
#include <optional>
#include <utility>

namespace optpipe {

/// The policy's decision for every stage. Stages that can't be offloaded are forbidden.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr per_stage<offload_decision, Graph::stage_extent> decisions_of(const basic_problem<Graph>& p,
                                                                                      const Policy& policy) {
    static_assert(check_offload_policy<Policy>());
    per_stage<offload_decision, Graph::stage_extent> decisions(p.graph.stages(), offload_decision::forbid);
    const auto paths = paths_of(p);
    const auto places = lifespan_places(p, paths);
    const auto stages = stages_by_rank(p.graph);
    for (const stage s : p.graph.all_stages()) {
        const auto offload = p.whole_offload(s);
        if (!offload) continue;
        decisions[s] = policy.decide({s, paths.lifespan[s], p.storage_of(s, *offload).extra_time(),
                                      p.costs[s].activation, places[s], stages[p.rank_of(s)].size()});
    }
    return decisions;
}

/// Removes the offloads of whole stashes that the policy forbids.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr basic_problem<Graph> restrict_offloading(basic_problem<Graph> p, const Policy& policy) {
    const auto decisions = decisions_of(p, policy);
    for (const stage s : p.graph.all_stages()) {
        if (decisions[s] != offload_decision::forbid) continue;
        storage_list<false> allowed;
        for (const auto& option : p.storage[s])
            if (!offloads_all(option)) allowed.push_back(option);
        if (allowed.empty()) allowed.push_back(keep_stash(p.costs[s]));
        p.set_storage(s, allowed);
    }
    return p;
}

namespace detail {

/// Gives the stage those of `options` that the policy allows; if it allows none, the stage keeps its stashes.
template <pipeline_graph Graph, class Policy, class List>
constexpr void choose_storage(basic_problem<Graph>& p, const Policy& policy, storage_candidate about,
                              const List& options) {
    about.costs = p.costs[about.stage];
    storage_list<false> allowed;
    for (const auto& option : options) {
        about.option = option;
        if (policy.allows(about)) allowed.push_back(option);
    }
    if (allowed.empty()) allowed.push_back(keep_stash(about.costs));
    p.set_storage(about.stage, allowed);
}

/// Gives every stage those of `options_of(stage)` that the policy allows.
template <pipeline_graph Graph, class Policy, class OptionsOf>
constexpr basic_problem<Graph> with_allowed_storage(basic_problem<Graph> p, const Policy& policy,
                                                    const OptionsOf& options_of) {
    const auto paths = paths_of(p);
    const auto places = lifespan_places(p, paths);
    const auto stages = stages_by_rank(p.graph);
    for (const stage s : p.graph.all_stages())
        choose_storage(p, policy, {s, {}, {}, paths.lifespan[s], places[s], stages[p.rank_of(s)].size()},
                       options_of(s));
    return p;
}

} // namespace detail

/// Removes the storage options that the policy doesn't allow.
template <pipeline_graph Graph, class Policy>
[[nodiscard]] constexpr basic_problem<Graph> restrict_storage(const basic_problem<Graph>& p, const Policy& policy) {
    static_assert(check_storage_policy<Policy>());
    return detail::with_allowed_storage(p, policy, [&](stage s) { return p.storage[s]; });
}

/// Makes a problem from three descriptions: its shape, the costs of a microbatch, and a policy for storing stashes. A
/// storage policy chooses from the options of a model that has them; with an offload policy, as by default, stashes are
/// kept or offloaded as a whole. The planner may ignore that an offload policy requires offloading. To enforce it, use
/// `adaptive_builder` with that policy, or `storage::uniform{"offload"}`, which allows nothing else. Every rank gets
/// `limit`: the device memory left for stashes, without weights, gradients and optimizer state. The members `p2p()`
/// (between all ranks), `time_unit` and `memory_unit` of the model are used if it has them. All other fields keep their
/// defaults and are public.
template <pipeline_graph Graph, class Model, class Policy = offload::solver_decides>
[[nodiscard]] constexpr basic_problem<Graph> make_problem(const Graph& g, const Model& model,
                                                          memory_size limit = memory_size::unlimited(),
                                                          const Policy& policy = {}) {
    static_assert(check_memory_model<Model>() && check_storage_of<Model>());
    static_assert(has_allows<Policy> || has_decide<Policy>,
                  "storage policy: needs `bool allows(const storage_candidate&) const`; "
                  "offload policy: needs `offload_decision decide(const offload_candidate&) const`");
    basic_problem<Graph> p{g, costs_of(model, g)};
    for (auto& l : p.memory_limit)
        l = limit;
    if constexpr (requires { model.p2p(); }) p.p2p = hop_times<Graph::rank_extent>{model.p2p()};
    if constexpr (requires { Model::time_unit; }) p.time_unit = Model::time_unit;
    if constexpr (requires { Model::memory_unit; }) p.memory_unit = Model::memory_unit;
    if constexpr (!has_allows<Policy>) {
        static_assert(check_offload_policy<Policy>());
        return restrict_offloading(std::move(p), policy);
    } else if constexpr (has_storage<Model>) {
        static_assert(check_storage_policy<Policy>());
        return detail::with_allowed_storage(std::move(p), policy,
                                            [&](stage s) { return model.storage(s, g.stages()); });
    } else {
        return restrict_storage(p, policy);
    }
}

} // namespace optpipe
