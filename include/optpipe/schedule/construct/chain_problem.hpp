#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/construct/injection.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The mean of the factors of all microbatches on a stage.
template <pipeline_graph Graph>
[[nodiscard]] constexpr cost_factors mean_factors(const basic_problem<Graph>& p, stage s) {
    cost_factors mean{0.0, 0.0, 0.0, 0.0, 0.0};
    const auto share = 1.0 / static_cast<double>(p.graph.microbatches());
    for (const microbatch m : p.graph.all_microbatches()) {
        const auto& f = p.microbatches.factors(s, m);
        mean.forward += share * f.forward;
        mean.backward_input += share * f.backward_input;
        mean.backward_weight += share * f.backward_weight;
        mean.memory += share * f.memory;
        mean.message += share * f.message;
    }
    return mean;
}

namespace detail {

/// Copies the costs and storage options of stage `s` from `p` to `to`, multiplied by the factors `f`.
template <pipeline_graph Graph>
void set_scaled_stage(const basic_problem<Graph>& p, stage s, const cost_factors& f, problem& to) {
    storage_list<false> options;
    for (const auto& option : p.storage[s])
        options.push_back(scaled(option, f));
    to.set_stage(s, scaled(p.costs[s], f), options);
}

/// Whether each pair of operations in the chain represents one pair in the problem. True without slices, if each
/// backward is a B.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool are_pairs_of_chain(const basic_problem<Graph>& p) {
    return !p.microbatches.has_slices() && std::all_of(p.costs.begin(), p.costs.end(), [](const stage_costs& c) {
        return c.gradients == gradient_kind::full;
    });
}

} // namespace detail

/// The problem that replaces `p` for builders that only support plain problems. The stages form a chain in their order.
/// Each of `sequences` sequences becomes one microbatch with mean costs. The memory of edges, attention keys and values
/// is left out. The result is plain, but may have pairs. The pairs of `p` are kept if each pair in the chain stands for
/// one pair of `p`.
template <pipeline_graph Graph>
[[nodiscard]] problem chain_problem(const basic_problem<Graph>& p, std::size_t sequences) {
    auto chain = to_problem(p);
    chain.graph = any_graph{p.graph.ranks(), sequences, chain.graph.placement()};
    chain.microbatches = {};
    chain.groups = {};
    if (!detail::are_pairs_of_chain(p)) chain.overlaps = {};
    const auto slices = static_cast<double>(p.graph.microbatches()) / static_cast<double>(sequences);
    for (const stage s : p.graph.all_stages()) {
        auto factors = mean_factors(p, s);
        for (auto* each : {&factors.forward, &factors.backward_input, &factors.backward_weight, &factors.memory})
            *each *= slices;
        detail::set_scaled_stage(p, s, factors, chain);
        chain.costs[s].gradients = gradient_kind::full;
    }
    return chain;
}

/// Calls `visit(operation)` for each slice of a sequence. The visited operation is `of` with the slice as its
/// microbatch. Forwards and offloads visit the slices in order, and all other kinds visit the slices in reverse.
template <class Visit> void for_each_slice(operation of, const std::vector<microbatch>& slices, const Visit& visit) {
    const bool is_reversed = of.kind != operation_kind::forward && of.kind != operation_kind::offload;
    for (std::size_t i = 0; i < slices.size(); ++i) {
        of.microbatch = slices[is_reversed ? slices.size() - 1 - i : i];
        visit(of);
    }
}

/// Converts an order of `chain_problem` to an order of `p`. Each operation of a sequence becomes one operation per
/// slice (`for_each_slice`). The order respects all edges and groups: each edge leads to a later stage, and all
/// forwards of a microbatch come before its gradients.
template <pipeline_graph Graph>
[[nodiscard]] basic_order<Graph> order_of_slices(const basic_problem<Graph>& p,
                                                 const std::vector<std::vector<microbatch>>& sequences,
                                                 const order& of_chain) {
    basic_order<Graph> result{p.graph, {}};
    for (const auto& of : of_chain.operations)
        for_each_slice(of, sequences[of.microbatch.position()], [&](const operation& op) {
            if (const auto form = detail::possible_form(p, op)) result.operations.push_back(*form);
        });
    return result;
}

} // namespace optpipe
