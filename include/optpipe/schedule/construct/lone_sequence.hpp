#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Calls `run` with the backward of the forward `f`. The backward is I and W if it may be split, and if B isn't allowed
/// or takes no less memory. Any other backward is B. `held` is the memory on the device when the backward starts. A
/// stage without weight gradients gets no W, and a stage without gradients gets nothing.
template <pipeline_graph Graph, class Run>
constexpr void run_backward(const basic_problem<Graph>& p, const operation& f, memory_size held, const Run& run) {
    const auto gradients = p.costs[f.stage].gradients;
    if (gradients == gradient_kind::none) return;
    const bool has_weight = gradients == gradient_kind::full;
    const bool split = !has_weight || (p.split_backward && (!p.full_backward || p.costs[f.stage].weight_stash <= held));
    run(sibling(f, split ? operation_kind::backward_input : operation_kind::backward));
    if (split && has_weight) run(sibling(f, operation_kind::backward_weight));
}

/// Calls `run` with the operations of a sequence that runs alone. All forwards come first, each followed by its
/// offload. All backwards follow in reverse, each after its reload and its recomputation. `slices` are the microbatches
/// of the sequence. `option_of(stage, microbatch)` is the storage option of a cell.
template <pipeline_graph Graph, class OptionOf, class Run>
constexpr void run_alone(const basic_problem<Graph>& p, const std::vector<microbatch>& slices,
                         const OptionOf& option_of, const Run& run) {
    const auto forward_of = [&](stage s, microbatch m) {
        auto f = forward(s, m);
        f.storage = static_cast<storage_index>(option_of(s, m));
        return f;
    };
    const auto run_if_possible = [&](const operation& op) {
        if (is_possible(p, op)) run(op);
    };
    for (const microbatch m : slices)
        for (const stage s : p.graph.all_stages()) {
            const auto f = forward_of(s, m);
            run(f);
            run_if_possible(sibling(f, operation_kind::offload));
        }
    for (auto k = slices.size(); k-- > 0;)
        for (std::size_t i = p.graph.stages(); i-- > 0;) {
            const stage s{i};
            if (p.costs[s].gradients == gradient_kind::none) continue;
            const auto f = forward_of(s, slices[k]);
            run_if_possible(sibling(f, operation_kind::reload));
            run_if_possible(sibling(f, operation_kind::recompute));
            run_backward(p, f, storage_of(p, f).restored(p.costs[s]), run);
        }
}

} // namespace optpipe::detail
