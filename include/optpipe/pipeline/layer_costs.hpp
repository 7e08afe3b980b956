#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace optpipe {

/// The costs of one layer of a model for one microbatch. A layer is the smallest unit of a stage. The costs of a stage
/// are sums over its layers. A stage computes a kind of gradient if any of its layers does. The layers without a
/// backward run first, and keep no activations. A stage's activation is the larger of two sums: over its layers without
/// a backward, and over all other layers.
struct layer_costs {
    stage_costs costs{};
    /// Device memory for weights, gradients and optimizer state, held during the entire training.
    memory_size static_memory{};
    /// The layer's storage options. An empty list stands for the options that the layer's costs describe. A stage has
    /// an option if all its layers with a backward have an option of that name. Options that recompute ahead of the
    /// backward can't be combined with options that recompute inside the backward.
    storage_list<false> storage{};
    /// The communication in `costs.forward` and `costs.backward_input`, such as all-to-alls. The remaining time is
    /// computation.
    duration forward_comm{};
    duration backward_comm{};
    /// The name of this kind of layer in measured pairs (`layer_pair`). May be empty.
    std::string kind{};
    friend bool operator==(const layer_costs&, const layer_costs&) = default;
};

template <class M> concept has_static_memory = requires(const M& model, stage s, std::size_t stages) {
    { model.static_memory(s, stages) } -> std::same_as<memory_size>;
};

/// The layers of a memory model. The model is evaluated for `count` stages with one layer each. The first layer
/// includes the model's embedding, and the last layer its output layer. `policy` chooses the storage options, as in
/// `make_problem`.
template <class Model, class Policy = offload::solver_decides>
[[nodiscard]] std::vector<layer_costs> layer_costs_of(const Model& model, std::size_t count,
                                                      const Policy& policy = {}) {
    const auto apart =
        make_problem(to_any_graph(graph<dynamic, dynamic>{count, 1}), model, memory_size::unlimited(), policy);
    std::vector<layer_costs> layers;
    for (const stage s : apart.graph.all_stages()) {
        layers.push_back({apart.costs[s], {}, apart.storage[s], {}, {}, {}});
        if constexpr (has_static_memory<Model>) layers.back().static_memory = model.static_memory(s, count);
    }
    return layers;
}

namespace detail {

[[nodiscard]] constexpr std::optional<transfer_times> both(const std::optional<transfer_times>& a,
                                                           const std::optional<transfer_times>& b) {
    if (!a || !b) return std::nullopt;
    return transfer_times{a->offload + b->offload, a->reload + b->reload};
}
/// The gradients of a stage with layers that compute `a` and layers that compute `b`.
[[nodiscard]] constexpr gradient_kind both(gradient_kind a, gradient_kind b) {
    for (const auto kind : {gradient_kind::full, gradient_kind::input})
        if (a == kind || b == kind) return kind;
    return gradient_kind::none;
}
[[nodiscard]] constexpr stage_costs both(const stage_costs& a, const stage_costs& b) {
    return {a.forward + b.forward,
            a.backward_input + b.backward_input,
            a.backward_weight + b.backward_weight,
            a.activation + b.activation,
            a.weight_stash + b.weight_stash,
            both(a.transfer, b.transfer),
            both(a.gradients, b.gradients),
            a.kv + b.kv};
}
/// Whether one option recomputes ahead of the backward, and the other inside the backward.
[[nodiscard]] constexpr bool recompute_differently(const storage_option& a, const storage_option& b) {
    const auto ahead = a.recompute + b.recompute;
    const auto inside = a.backward_extra + b.backward_extra;
    return ahead > duration{} && inside > duration{};
}
/// The sum of the transfer times of two layers. A layer without transfers adds nothing. Empty if neither layer has
/// transfers.
[[nodiscard]] constexpr std::optional<transfer_times> either(const std::optional<transfer_times>& a,
                                                             const std::optional<transfer_times>& b) {
    if (!a && !b) return std::nullopt;
    return both(std::optional{a.value_or(transfer_times{})}, std::optional{b.value_or(transfer_times{})});
}
/// Sums the options that have the same name in both lists. Skips pairs of options that recompute differently
/// (`recompute_differently`).
[[nodiscard]] OPTPIPE_CONSTEXPR storage_list<false> both(const storage_list<false>& a, const storage_list<false>& b) {
    storage_list<false> options;
    for (const auto& x : a)
        for (const auto& y : b)
            if (x.name == y.name && !recompute_differently(x, y))
                options.push_back({x.name, x.held + y.held, x.recompute + y.recompute,
                                   x.backward_extra + y.backward_extra, x.transfer_size + y.transfer_size,
                                   either(x.transfer, y.transfer)});
    return options;
}

/// The layer's storage list. An empty list is replaced by the options that the layer's costs describe.
[[nodiscard]] storage_list<false> listed_storage(const layer_costs& layer);

/// The costs and storage options of a stage with the layers in `which`. Contract: `which` isn't empty, and layers
/// without a backward come first.
[[nodiscard]] layer_costs sum_of(std::span<const layer_costs> layers, std::span<const std::size_t> which);
/// Like `with_layers` below, with the layers in the sequence `order`.
[[nodiscard]] problem with_ordered_layers(problem p, std::span<const layer_costs> layers,
                                          std::span<const std::size_t> order, std::span<const std::size_t> counts);

} // namespace detail

/// The pipeline `p` with these layers distributed over its stages in order. Stage s holds `counts[s]` ≥ 1 layers.
/// `p.memory_limit` is the devices' memory. The static memory of each rank's layers is subtracted. Costs and storage of
/// `p` are replaced.
///
/// Contract: `counts` has one entry per stage, and the sum of its entries is the number of layers. The layers of each
/// stage have at least one storage option in common.
[[nodiscard]] problem with_layers(problem p, std::span<const layer_costs> layers, std::span<const std::size_t> counts);

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/tolerance.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace optpipe {
namespace detail {

OPTPIPE_INLINE storage_list<false> listed_storage(const layer_costs& layer) {
    return layer.storage.empty() ? described_storage(layer.costs) : layer.storage;
}

/// The sum over the layers in `which`. Contract: either all of these layers have a backward, or none does.
inline layer_costs sum_of_alike(std::span<const layer_costs> layers, std::span<const std::size_t> which) {
    auto sum = layers[which.front()];
    sum.storage = listed_storage(sum);
    for (const auto layer : which.subspan(1)) {
        sum.costs = both(sum.costs, layers[layer].costs);
        sum.storage = both(sum.storage, listed_storage(layers[layer]));
    }
    return sum;
}

OPTPIPE_INLINE layer_costs sum_of(std::span<const layer_costs> layers, std::span<const std::size_t> which) {
    const auto trained = std::find_if(which.begin(), which.end(), [&](std::size_t layer) {
        return layers[layer].costs.gradients != gradient_kind::none;
    });
    const auto count = static_cast<std::size_t>(trained - which.begin());
    if (count == 0 || count == which.size()) return sum_of_alike(layers, which);
    const auto before = sum_of_alike(layers, which.first(count)).costs;
    auto sum = sum_of_alike(layers, which.subspan(count));
    const auto activation = std::max(before.activation, sum.costs.activation);
    sum.costs = both(before, sum.costs);
    sum.costs.activation = activation;
    for (auto& option : sum.storage)
        option.held = std::max(option.held, before.activation); // layers without a backward need this memory in the
                                                                // forward
    return sum;
}

OPTPIPE_INLINE problem with_ordered_layers(problem p, std::span<const layer_costs> layers,
                                           std::span<const std::size_t> order, std::span<const std::size_t> counts) {
    OPTPIPE_EXPECT(counts.size() == p.graph.stages(), "with_layers: one count for each stage");
    OPTPIPE_EXPECT(std::accumulate(counts.begin(), counts.end(), std::size_t{0}) == layers.size(),
                   "with_layers: the stages hold another number of layers");
    std::size_t next = 0;
    for (const stage s : p.graph.all_stages()) {
        OPTPIPE_EXPECT(counts[s.position()] > 0, "with_layers: a stage without layers");
        const auto here = order.subspan(next, counts[s.position()]);
        next += here.size();
        const auto sum = sum_of(layers, here);
        auto& limit = p.memory_limit[p.rank_of(s)];
        const auto slack = tolerance{}.at(limit);
        for (const auto layer : here)
            limit -= layers[layer].static_memory;
        if (limit < memory_size{} && limit > -1.0 * slack) limit = {}; // a small negative limit is a rounding error
        OPTPIPE_EXPECT(!sum.storage.empty(), "with_layers: layers of a stage have no storage option in common");
        p.set_stage(s, sum.costs, sum.storage);
    }
    return p;
}

} // namespace detail

OPTPIPE_INLINE problem with_layers(problem p, std::span<const layer_costs> layers,
                                   std::span<const std::size_t> counts) {
    std::vector<std::size_t> sorted(layers.size());
    std::iota(sorted.begin(), sorted.end(), std::size_t{0});
    return detail::with_ordered_layers(std::move(p), layers, sorted, counts);
}

} // namespace optpipe
#endif
