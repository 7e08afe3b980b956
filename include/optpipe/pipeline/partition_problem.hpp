#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/layer_pairs.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace optpipe {

/// The layers of a model, and several pipelines. The layers may be divided among the stages of any one of these
/// pipelines. All pipelines have the same devices and microbatches, and differ in the placement of stages.
struct partition_problem {
    std::vector<layer_costs> layers{};
    /// Each pipeline is a chain without groups and pairs. The factors of a microbatch are the same on all stages. The
    /// memory limits of a pipeline are the memory of its devices, including the memory for weights. Costs and storage
    /// options of pipelines are ignored, because the layers have their own.
    std::vector<problem> pipelines{};
    /// The edges between layers, each pair of layers at most once. Without a list, every layer feeds the next one.
    std::optional<std::vector<layer_edge>> edges{};
    std::vector<layer_pin> pins{};
    /// Each list names layers that must be in the same stage. Layers on a path of edges between two listed layers are
    /// in the same stage, too.
    std::vector<std::vector<std::size_t>> together{};
    /// The speed of each rank. The durations on a rank are divided by its speed. Empty if all ranks have speed 1.
    std::vector<double> rank_speed{};
    /// The slowdown of a pair: its duration is multiplied by 1 + `contention` (`overlap_duration`).
    double contention = 0.0;
    /// Measured durations of pairs, by the kinds of the two layers. With measured durations, pairs of stages run layer
    /// by layer (`layer_pairing`).
    std::vector<layer_pair> layer_pairs{};

    [[nodiscard]] double speed_of(rank r) const { return rank_speed.empty() ? 1.0 : rank_speed[r.position()]; }
};

/// The pipeline `p.pipelines[pipeline]` with layer i on stage `stage_of[i]`. Durations are divided by the speed of the
/// stage's rank. Edges between layers of different stages become edges between these stages. A layer sends its output
/// once to each stage that needs the output. Among a layer's edges to one stage, only the largest `size` and the
/// largest `held` count. The `size` and the `held` of an edge between stages are sums over the sending layers. Pairs of
/// stages that save time are added (`layer_pairing`).
///
/// Contract: `p` is valid, and `pipeline` is the index of one of its pipelines. Every stage has a layer, and no edge
/// leads to an earlier stage.
[[nodiscard]] problem with_layers(const partition_problem& p, std::size_t pipeline, std::span<const stage> stage_of);

/// The pipeline `p` with another placement. The costs of the result's stages are 0, and must be set with `set_stage`.
/// The stages form a chain in the result.
template <placement_policy Placement> [[nodiscard]] problem with_placement(problem p, const Placement& where) {
    p.graph = to_any_graph(graph<dynamic, dynamic, Placement>{p.graph.ranks(), p.graph.microbatches(), where});
    p.costs = per_stage<stage_costs>(p.graph.stages());
    p.storage = per_stage<storage_list<false>>(p.graph.stages(), described_storage({}));
    return p;
}

/// The pipeline `p` with each of the usual placements. The first placement has one stage per rank. The second and third
/// placements have two stages per rank, as a loop and as a v. Loop and v are left out if there is one rank or too few
/// layers.
[[nodiscard]] std::vector<problem> usual_placements(const problem& p, std::size_t layers);

namespace detail {

class layer_cuts;

/// The violations in the layers. Each layer is checked like a stage.
[[nodiscard]] std::vector<violation> validate_layers(std::span<const layer_costs> layers);
/// Violations that concern several layers. Reports out-of-range sums over all layers, and layers without a common
/// storage option. Reports layers without a backward that come after layers with a backward. Contract: each layer is
/// valid by itself.
[[nodiscard]] std::vector<violation> validate_sums(std::span<const layer_costs> layers);
/// Violations in a pipeline, except in its costs.
[[nodiscard]] std::vector<violation> validate_without_costs(problem p);
/// The cuts of the problem's layers. Contract: layers without a backward come first.
[[nodiscard]] layer_cuts cuts_of(const partition_problem& p);
/// Violations in edges, pins, lists of layers that belong together, speeds, and pairs of layers. Contract: there is at
/// least one pipeline.
[[nodiscard]] std::vector<violation> validate_rules(const partition_problem& p);

} // namespace detail

/// All reasons why `p` isn't a valid partition problem; empty if `p` is valid.
[[nodiscard]] std::vector<violation> validate(const partition_problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_divisions.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

namespace optpipe {
namespace detail {

/// The edges between stages that follow from the edges between layers.
inline edges::any stage_edges(const std::vector<layer_edge>& between, std::span<const stage> stage_of,
                              std::size_t stages) {
    std::map<std::pair<stage, stage>, std::map<std::size_t, layer_edge>> sent; // indexed by the two stages, then by the
                                                                               // sending layer
    for (const auto& each : between) {
        const auto ends = std::pair{stage_of[each.from], stage_of[each.to]};
        if (ends.first == ends.second) continue;
        auto& once = sent[ends].try_emplace(each.from, each).first->second;
        once.size = std::max(once.size, each.size);
        once.held = std::max(once.held, each.held);
    }
    std::vector<edge> all;
    for (const auto& [ends, tensors] : sent) {
        auto& sum = all.emplace_back(edge{ends.first, ends.second, 0.0, {}});
        for (const auto& [layer, each] : tensors) {
            sum.size += each.size;
            sum.held += each.held;
        }
    }
    return {stages, std::move(all)};
}

/// The costs of a stage that holds all layers.
inline layer_costs sum_of_all(std::span<const layer_costs> layers) {
    std::vector<std::size_t> all(layers.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return sum_of(layers, all);
}

/// The number of layers without a backward, which come first.
inline std::size_t count_without_backward(std::span<const layer_costs> layers) {
    const auto trained = std::find_if(layers.begin(), layers.end(), [](const layer_costs& each) {
        return each.costs.gradients != gradient_kind::none;
    });
    return static_cast<std::size_t>(trained - layers.begin());
}

/// Divides the durations of the stage's computations by `speed`.
inline void run_at_speed(problem& p, stage s, double speed) {
    auto costs = p.costs[s];
    costs.forward = costs.forward / speed;
    costs.backward_input = costs.backward_input / speed;
    costs.backward_weight = costs.backward_weight / speed;
    auto options = p.storage[s];
    for (auto& option : options) {
        option.recompute = option.recompute / speed;
        option.backward_extra = option.backward_extra / speed;
    }
    p.set_stage(s, costs, options);
}

/// Adds the pairs that save time. Contract: the stages of `p` have the costs of the layers in `layers_of` at the speeds
/// of `given`.
inline void add_pairs(problem& p, const partition_problem& given,
                      const per_stage<std::vector<std::size_t>>& layers_of) {
    const layer_pairing pairing{given.layers, given.contention, given.layer_pairs};
    if (!pairing.has_pairs()) return;
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages()) {
            if (p.rank_of(f) != p.rank_of(b)) continue;
            for (const auto kind : pair_kinds(p, p.costs[b].gradients)) {
                const auto parts = std::pair{p.costs[f].forward, length_of(p.costs[b], kind)};
                const auto together = pairing.of(layers_of[f], layers_of[b], kind) / given.speed_of(p.rank_of(f));
                const auto alone = parts.first + parts.second;
                if (together < alone - tolerance{}.at(alone))
                    p.overlaps.add({f, b, kind, std::max({together, parts.first, parts.second}), {}});
            }
        }
}

} // namespace detail

OPTPIPE_INLINE detail::layer_cuts detail::cuts_of(const partition_problem& p) {
    return {p.layers.size(), p.edges, p.together, count_without_backward(p.layers)};
}

OPTPIPE_INLINE problem with_layers(const partition_problem& p, std::size_t pipeline, std::span<const stage> stage_of) {
    const auto& g = p.pipelines[pipeline].graph;
    OPTPIPE_EXPECT(stage_of.size() == p.layers.size(), "with_layers: one stage for each layer");
    std::vector<std::size_t> sorted(stage_of.size());
    std::iota(sorted.begin(), sorted.end(), std::size_t{0});
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::size_t a, std::size_t b) { return stage_of[a] < stage_of[b]; });
    std::vector<std::size_t> counts(g.stages(), 0);
    per_stage<std::vector<std::size_t>> layers_of(g.stages());
    for (const auto layer : sorted) {
        ++counts[stage_of[layer].position()];
        layers_of[stage_of[layer]].push_back(layer);
    }
    auto made = detail::with_ordered_layers(p.pipelines[pipeline], p.layers, sorted, counts);
    if (p.edges)
        made.graph = {g.ranks(), g.microbatches(), g.placement(), detail::stage_edges(*p.edges, stage_of, g.stages())};
    for (const stage s : made.graph.all_stages())
        if (const auto speed = p.speed_of(made.rank_of(s)); speed != 1.0) detail::run_at_speed(made, s, speed);
    detail::add_pairs(made, p, layers_of);
    return made;
}

OPTPIPE_INLINE std::vector<problem> usual_placements(const problem& p, std::size_t layers) {
    std::vector<problem> pipelines{with_placement(p, placement::linear{})};
    if (p.graph.ranks() > 1 && layers >= 2 * p.graph.ranks()) {
        pipelines.push_back(with_placement(p, placement::loop<>{2}));
        pipelines.push_back(with_placement(p, placement::v{}));
    }
    return pipelines;
}

OPTPIPE_INLINE std::vector<violation> detail::validate_layers(std::span<const layer_costs> layers) {
    if (layers.empty()) return {{"layers", "must hold at least one"}};
    problem apart{any_graph{layers.size(), 1, to_any_graph(graph<dynamic, dynamic>{layers.size(), 1}).placement(),
                            edges::any{layers.size(), {}}},
                  per_stage<stage_costs>(layers.size())};
    for (const stage s : apart.graph.all_stages()) {
        const auto& layer = layers[s.position()];
        apart.set_stage(s, layer.costs, listed_storage(layer));
    }
    auto found = validate(apart);
    constexpr std::string_view stages = "stages";
    for (auto& v : found)
        if (v.place.starts_with(stages)) v.place = "layers" + v.place.substr(stages.size());
    number_checks numbers{found};
    const auto part_of = [&](std::size_t i, const char* name, duration part, const char* of, duration all) {
        numbers.not_negative(place("layers", i, name), part.value());
        if (part > all + tolerance{1e-9}.at(all))
            found.push_back({place("layers", i, name),
                             "is " + format_number(part) + ", must be at most " + of + ", " + format_number(all)});
    };
    for (std::size_t i = 0; i < layers.size(); ++i) {
        numbers.not_negative(place("layers", i, "static_memory"), layers[i].static_memory.value());
        part_of(i, "forward_comm", layers[i].forward_comm, "forward", layers[i].costs.forward);
        part_of(i, "backward_comm", layers[i].backward_comm, "backward_input", layers[i].costs.backward_input);
    }
    return found;
}

OPTPIPE_INLINE std::vector<violation> detail::validate_sums(std::span<const layer_costs> layers) {
    std::vector<violation> found;
    if (layers.empty()) return found;
    const auto trained = count_without_backward(layers);
    for (auto layer = trained; layer < layers.size() && found.empty(); ++layer)
        if (layers[layer].costs.gradients == gradient_kind::none)
            found.push_back({"layers", "layer " + std::to_string(layer) +
                                           ", which has no backward, must come before layer " +
                                           std::to_string(trained) + ", which has one"});
    if (!found.empty()) return found;
    const auto all = sum_of_all(layers);
    duration time{};
    memory_size memory{};
    for (const auto& layer : layers) {
        duration longest{};
        for (const auto& option : listed_storage(layer))
            longest = std::max(longest, option.extra_time());
        time += layer.costs.work() + longest;
        memory += layer.costs.activation + layer.costs.weight_stash + layer.costs.kv + layer.static_memory;
    }
    if (all.storage.empty()) found.push_back({"layers", "have no storage option in common"});
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

namespace detail {

/// Whether there is a layer with the index `layer`. If there is no such layer, adds a violation at `where`.
inline bool is_layer(const partition_problem& p, const std::string& where, std::size_t layer,
                     std::vector<violation>& found) {
    if (layer < p.layers.size()) return true;
    found.push_back(
        {where, "is " + std::to_string(layer) + ", there are " + std::to_string(p.layers.size()) + " layers"});
    return false;
}

inline void validate_layer_edges(const partition_problem& p, std::vector<violation>& found) {
    if (!p.edges) return;
    number_checks numbers{found};
    std::set<std::pair<std::size_t, std::size_t>> pairs;
    double sizes = 0.0;
    memory_size held{};
    for (std::size_t i = 0; i < p.edges->size(); ++i) {
        const auto& each = (*p.edges)[i];
        const bool has_from = is_layer(p, place("edges", i, "from"), each.from, found);
        const bool has_to = is_layer(p, place("edges", i, "to"), each.to, found);
        if (has_from && has_to && each.from >= each.to)
            found.push_back({place("edges", i, "to"),
                             "is " + std::to_string(each.to) + ", must be after from, " + std::to_string(each.from)});
        if (!pairs.insert({each.from, each.to}).second)
            found.push_back({place("edges", i), "is the second edge from layer " + std::to_string(each.from) +
                                                    " to layer " + std::to_string(each.to)});
        numbers.not_negative(place("edges", i, "size"), each.size);
        numbers.not_negative(place("edges", i, "held"), each.held.value());
        sizes += each.size;
        held += each.held;
    }
    if (!found.empty()) return;
    numbers.not_negative("edges: the sum of size", sizes);
    numbers.not_negative("edges: the sum of held", held.value());
}

inline void validate_pins(const partition_problem& p, std::vector<violation>& found) {
    auto least_stages = p.pipelines.front().graph.stages();
    for (const auto& each : p.pipelines)
        least_stages = std::min(least_stages, each.graph.stages());
    const auto ranks = p.pipelines.front().graph.ranks();
    const auto below = [&](const std::string& where, std::size_t index, std::size_t count, const std::string& of) {
        if (index >= count)
            found.push_back({where, "is " + std::to_string(index) + ", there are " + std::to_string(count) + of});
    };
    for (std::size_t i = 0; i < p.pins.size(); ++i) {
        static_cast<void>(is_layer(p, place("pins", i, "layer"), p.pins[i].layer, found));
        const auto& where = p.pins[i].where;
        if (const auto* const s = std::get_if<stage>(&where))
            below(place("pins", i, "stage"), s->position(), least_stages,
                  p.pipelines.size() > 1 ? " stages in one of the placements" : " stages");
        else
            below(place("pins", i, "rank"), std::get<rank>(where).position(), ranks, " ranks");
    }
}

inline void validate_together(const partition_problem& p, std::vector<violation>& found) {
    for (std::size_t i = 0; i < p.together.size(); ++i) {
        const auto list = place("together", i);
        if (std::set<std::size_t>(p.together[i].begin(), p.together[i].end()).size() < 2)
            found.push_back({list, "must name at least two layers"});
        for (std::size_t j = 0; j < p.together[i].size(); ++j)
            static_cast<void>(is_layer(p, place(list.c_str(), j), p.together[i][j], found));
    }
}

/// Reports speeds that aren't numbers above 0, and speeds that make a duration 0 or infinite.
inline void validate_speeds(const partition_problem& p, std::vector<violation>& found) {
    const auto ranks = p.pipelines.front().graph.ranks();
    if (!p.rank_speed.empty() && p.rank_speed.size() != ranks)
        found.push_back({"rank_speed", "has " + std::to_string(p.rank_speed.size()) + " entries, there are " +
                                           std::to_string(ranks) + " ranks"});
    number_checks numbers{found};
    for (std::size_t r = 0; r < p.rank_speed.size(); ++r)
        numbers.positive(place("rank_speed", r), p.rank_speed[r]);
    if (!found.empty()) return;
    const auto [slowest, fastest] = std::minmax_element(p.rank_speed.begin(), p.rank_speed.end());
    if (slowest == p.rank_speed.end()) return;
    const auto all = sum_of_all(p.layers);
    auto longest = all.costs.work();
    for (const auto& option : all.storage)
        longest = std::max(longest, all.costs.work() + option.extra_work());
    numbers.positive(place("rank_speed", static_cast<std::size_t>(slowest - p.rank_speed.begin())) +
                         ": the time of all layers",
                     longest.value() / *slowest);
    for (std::size_t i = 0; i < p.layers.size(); ++i)
        for (const auto time :
             {p.layers[i].costs.forward, p.layers[i].costs.backward_input, p.layers[i].costs.backward_weight})
            if (time > duration{})
                numbers.positive(place("rank_speed", static_cast<std::size_t>(fastest - p.rank_speed.begin())) +
                                     ": a time of layer " + std::to_string(i),
                                 time.value() / *fastest);
}

/// Whether `holds(layer)` is true for any layer of this kind.
template <class Holds> bool has_kind(const partition_problem& p, const std::string& kind, const Holds& holds) {
    return std::any_of(p.layers.begin(), p.layers.end(),
                       [&](const layer_costs& each) { return each.kind == kind && holds(each); });
}

/// The longest operation of the pair: a forward of kind `of.forward`, or a backward of kind `of.backward`.
inline duration longest_part(const partition_problem& p, const layer_pair& of) {
    duration longest{};
    for (const auto& each : p.layers) {
        if (each.kind == of.forward) longest = std::max(longest, each.costs.forward);
        if (each.kind == of.backward) longest = std::max(longest, length_of(each.costs, of.kind));
    }
    return longest;
}

/// Reports a measured pair if no layer has its kind, if no layer has its backward, or if one operation is longer than
/// the pair.
inline void validate_layer_pair(const partition_problem& p, std::size_t i, std::vector<violation>& found) {
    const auto& each = p.layer_pairs[i];
    const auto field = [&](const char* name) { return place("layer_pairs", i, name); };
    const auto any = [](const layer_costs&) { return true; };
    const auto has_backward = [&](const layer_costs& layer) {
        return layer.costs.gradients == gradient_kind::full ||
               (each.kind == overlap_kind::backward_input && layer.costs.gradients == gradient_kind::input);
    };
    for (const auto& [name, kind] : {std::pair{"forward", each.forward}, {"backward", each.backward}})
        if (!has_kind(p, kind, any)) found.push_back({field(name), "is the kind of no layer"});
    if (has_kind(p, each.backward, any) && !has_kind(p, each.backward, has_backward))
        found.push_back({field("kind"), std::string{"no layer of the backward's kind has "} +
                                            (each.kind == overlap_kind::backward ? "B" : "I")});
    number_checks{found}.positive(field("duration"), each.duration.value());
    const auto longest = longest_part(p, each);
    if (each.duration > duration{} && each.duration < longest - tolerance{1e-9}.at(longest))
        found.push_back({field("duration"), format_number(each.duration) + " is shorter than a part, which takes " +
                                                format_number(longest)});
}

/// The largest number of pairs that the pipeline can have.
inline std::size_t count_pairs(const problem& p) {
    per_rank<std::size_t> stages(p.graph.ranks(), 0);
    for (const stage s : p.graph.all_stages())
        ++stages[p.rank_of(s)];
    std::size_t pairs = 0;
    for (const auto count : stages)
        pairs += pair_kinds(p, gradient_kind::full).size() * count * count;
    return pairs;
}

inline void validate_layer_pairs(const partition_problem& p, std::vector<violation>& found) {
    number_checks{found}.not_negative("contention", p.contention);
    std::set<std::tuple<std::string, std::string, overlap_kind>> seen;
    for (std::size_t i = 0; i < p.layer_pairs.size(); ++i) {
        const auto& each = p.layer_pairs[i];
        validate_layer_pair(p, i, found);
        if (!seen.insert({each.forward, each.backward, each.kind}).second)
            found.push_back({place("layer_pairs", i), "is the second pair of these kinds"});
    }
    if (!layer_pairing{p.layers, p.contention, p.layer_pairs}.has_pairs()) return;
    for (std::size_t i = 0; i < p.pipelines.size(); ++i)
        if (const auto pairs = count_pairs(p.pipelines[i]); pairs > most_overlaps)
            found.push_back({place("pipelines", i), "has " + std::to_string(pairs) + " pairs of stages, at most " +
                                                        std::to_string(most_overlaps) + " are possible"});
}

/// Reports pins and layers that belong together if no division of the layers can meet them.
inline void validate_divisions(const partition_problem& p, std::vector<violation>& found) {
    if (p.pins.empty() && p.together.empty()) return;
    const auto cuts = cuts_of(p);
    const auto can_be_divided = [&](const problem& each) { return layer_divisions{cuts, p.pins, each.graph}.exist(); };
    if (std::any_of(p.pipelines.begin(), p.pipelines.end(), can_be_divided)) return;
    std::string reason = p.pins.empty() ? "leaves" : p.together.empty() ? "leave" : "and together leave";
    reason += " no way to divide the layers among the stages";
    if (!cuts.are_all()) reason += " in their order; there are too many branches for others";
    found.push_back({p.pins.empty() ? "together" : "pins", reason});
}

} // namespace detail

OPTPIPE_INLINE std::vector<violation> detail::validate_rules(const partition_problem& p) {
    std::vector<violation> found;
    validate_layer_edges(p, found);
    validate_pins(p, found);
    validate_together(p, found);
    validate_speeds(p, found);
    validate_layer_pairs(p, found);
    if (found.empty()) validate_divisions(p, found);
    return found;
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
        if (!p.layers.empty() && p.layers.size() < each.graph.stages())
            found.push_back({where, "has " + std::to_string(each.graph.stages()) +
                                        " stages, which take one layer each at least; there are " +
                                        std::to_string(p.layers.size())});
        if (!each.graph.is_chain() || !each.groups.empty() || each.microbatches.is_by_stage() || !each.overlaps.empty())
            found.push_back({where,
                             "has edges, groups, pairs or factors of its stages, which aren't known before layers are "
                             "divided"});
        if (each.graph.ranks() != first.graph.ranks() || each.graph.microbatches() != first.graph.microbatches() ||
            each.microbatches != first.microbatches || each.objective != first.objective)
            found.push_back({where, "has other ranks, microbatches or another objective than the first"});
    }
    if (found.empty()) found = detail::validate_rules(p);
    return found;
}

} // namespace optpipe
#endif
