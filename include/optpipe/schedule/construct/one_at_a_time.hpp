#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// The storage options with which each rank needs the least memory for one microbatch at a time (`least_memory`).
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_stage<storage_index, Graph::stage_extent> frugal_storage(const basic_problem<Graph>& p) {
    per_stage<storage_index, Graph::stage_extent> chosen(p.graph.stages());
    const auto stages = stages_by_rank(p.graph);
    for (const rank r : p.graph.all_ranks()) {
        const auto least = least_memory(p, r);
        for (std::size_t i = 0; i < least.options.size(); ++i)
            chosen[stages[r][i]] = static_cast<storage_index>(least.options[i]);
    }
    return chosen;
}

/// One microbatch after the other, each with the same storage option per stage: the slowest order, which fits wherever
/// these options fit for one microbatch. For problems with lists of storage options.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph>
one_at_a_time(const basic_problem<Graph>& p, const per_stage<storage_index, Graph::stage_extent>& chosen) {
    basic_order<Graph> result{p.graph, {}};
    const auto add = [&](stage s, operation_kind kind, microbatch m) {
        result.operations.push_back({s, kind, m, p.storage[s].empty() ? storage_index{} : chosen[s]});
    };
    for (const microbatch m : p.graph.all_microbatches()) {
        for (const stage s : p.graph.all_stages()) {
            add(s, operation_kind::forward, m);
            if (p.storage_of(s, chosen[s]).offloads()) add(s, operation_kind::offload, m);
        }
        for (std::size_t i = p.graph.stages(); i-- > 0;) {
            const stage s{i};
            const auto option = p.storage_of(s, chosen[s]);
            if (option.offloads()) add(s, operation_kind::reload, m);
            if (option.recomputes()) add(s, operation_kind::recompute, m);
            add(s, operation_kind::backward, m);
        }
    }
    return result;
}

} // namespace optpipe
