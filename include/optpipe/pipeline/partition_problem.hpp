#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace optpipe {

/// The layers of a model, and the pipelines that they may be divided among: the same devices and microbatches with
/// different placements of the stages.
struct partition_problem {
    std::vector<layer_costs> layers{};
    /// Memory limits are those of the devices. Costs and storage options of the pipelines are ignored, as the layers
    /// have their own.
    std::vector<problem> pipelines{};
};

/// The pipeline `p` with another placement. The costs of its stages are 0 afterwards, and must be set with
/// `set_stage`.
template <placement_policy Placement> [[nodiscard]] problem with_placement(problem p, const Placement& where) {
    p.graph = to_any_graph(graph<dynamic, dynamic, Placement>{p.graph.ranks(), p.graph.microbatches(), where});
    p.costs = per_stage<stage_costs>(p.graph.stages());
    p.storage = per_stage<storage_list<false>>(p.graph.stages(), described_storage({}));
    return p;
}

/// The usual placements for which `layers` layers suffice: one stage per rank, and two stages per rank as a loop and as
/// a v.
[[nodiscard]] std::vector<problem> usual_placements(const problem& p, std::size_t layers);

namespace detail {

/// Violations in the layers, each checked like a stage with its costs.
[[nodiscard]] std::vector<violation> validate_layers(std::span<const layer_costs> layers);
/// Violations in the sums over all layers, if each layer is valid by itself.
[[nodiscard]] std::vector<violation> validate_sums(std::span<const layer_costs> layers);
/// Violations in a pipeline, except in its costs.
[[nodiscard]] std::vector<violation> validate_without_costs(problem p);

} // namespace detail

/// All reasons why `p` isn't a valid partition problem; empty if it can be planned.
[[nodiscard]] std::vector<violation> validate(const partition_problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include "optpipe/pipeline/validate_problem.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE std::vector<problem> usual_placements(const problem& p, std::size_t layers) {
    std::vector<problem> pipelines{with_placement(p, placement::linear{})};
    if (p.graph.ranks() > 1 && layers >= 2 * p.graph.ranks()) {
        pipelines.push_back(with_placement(p, placement::loop<>{2}));
        pipelines.push_back(with_placement(p, placement::v{}));
    }
    return pipelines;
}

OPTPIPE_INLINE std::vector<violation> detail::validate_layers(std::span<const layer_costs> layers) {
    problem apart{to_any_graph(graph<dynamic, dynamic>{layers.size(), 1}), per_stage<stage_costs>(layers.size())};
    for (const stage s : apart.graph.all_stages()) {
        const auto& layer = layers[s.position()];
        apart.set_stage(s, layer.costs, listed_storage(layer));
    }
    auto found = validate(apart);
    constexpr std::string_view stages = "stages";
    for (auto& v : found)
        if (v.place.starts_with(stages)) v.place = "layers" + v.place.substr(stages.size());
    number_checks numbers{found};
    for (std::size_t i = 0; i < layers.size(); ++i)
        numbers.not_negative(place("layers", i, "static_memory"), layers[i].static_memory.value());
    return found;
}

OPTPIPE_INLINE std::vector<violation> detail::validate_sums(std::span<const layer_costs> layers) {
    std::vector<violation> found;
    if (layers.empty()) return found;
    auto common = listed_storage(layers.front());
    duration time{};
    memory_size memory{};
    for (const auto& layer : layers) {
        const auto options = listed_storage(layer);
        if (&layer != &layers.front()) common = both(common, options);
        duration longest{};
        for (const auto& option : options)
            longest = std::max(longest, option.extra_time());
        time += layer.costs.work() + longest;
        memory += layer.costs.activation + layer.costs.weight_stash + layer.static_memory;
    }
    if (common.empty()) found.push_back({"layers", "have no storage option in common"});
    number_checks numbers{found};
    numbers.positive("layers", time.value());
    numbers.not_negative("layers", memory.value());
    for (auto& v : found)
        if (v.reason.starts_with("must be")) v.reason.insert(0, "together ");
    return found;
}

OPTPIPE_INLINE std::vector<violation> detail::validate_without_costs(problem p) {
    for (const stage s : p.graph.all_stages())
        p.set_stage(s, {duration{1.0}, duration{1.0}, duration{1.0}, {}, {}, {}});
    return validate(p);
}

OPTPIPE_INLINE std::vector<violation> validate(const partition_problem& p) {
    auto found = detail::validate_layers(p.layers);
    if (found.empty()) found = detail::validate_sums(p.layers);
    if (p.pipelines.empty()) found.push_back({"pipelines", "must hold at least one"});
    for (std::size_t i = 0; i < p.pipelines.size(); ++i) {
        const auto& each = p.pipelines[i];
        const auto& first = p.pipelines.front();
        const auto where = detail::place("pipelines", i);
        for (auto& v : detail::validate_without_costs(each))
            found.push_back({where + "." + v.place, std::move(v.reason)});
        if (p.layers.size() < each.graph.stages())
            found.push_back({where, "has " + std::to_string(each.graph.stages()) +
                                        " stages, which take one layer each at least; there are " +
                                        std::to_string(p.layers.size())});
        if (each.graph.ranks() != first.graph.ranks() || each.graph.microbatches() != first.graph.microbatches() ||
            each.objective != first.objective)
            found.push_back({where, "has other ranks, microbatches or another objective than the first"});
    }
    return found;
}

} // namespace optpipe
#endif
