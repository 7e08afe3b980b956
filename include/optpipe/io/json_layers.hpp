#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/partition_problem.hpp"

#include <string>
#include <string_view>

namespace optpipe {

/// Reads layers, devices and possible placements in the format `optpipe.layers/2` or /1. Format /1 lacks edges, pins,
/// `together`, speeds, frozen layers, attention keys and values, pairs and microbatch lists. Throws `input_error` as
/// `parse_problem` does. If the text has no placements, `usual_placements` are used.
[[nodiscard]] partition_problem parse_layers(std::string_view text, const std::string& source_name);

/// Reads a file with `parse_layers`. Throws `file_error` if the file can't be read or is larger than 64 MiB.
[[nodiscard]] partition_problem read_layers(const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/core/parse_number.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_graph.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/limits.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The largest number of placements in a file.
inline constexpr std::size_t most_placements = 64;

inline layer_costs read_layer(const fields& at, std::size_t version, violation_list& found) {
    constexpr auto later = "belongs to optpipe.layers/2";
    if (version >= 2)
        at.refuse_unknown({"count", "forward", "backward_input", "backward_weight", "activation", "weight_stash",
                           "offload", "reload", "storage", "static_memory", "backward", "kv", "forward_comm",
                           "backward_comm", "kind"});
    else
        at.refuse_unknown(
            {"count", "forward", "backward_input", "backward_weight", "activation", "weight_stash", "offload", "reload",
             "storage", "static_memory"},
            {{"backward", later}, {"kv", later}, {"forward_comm", later}, {"backward_comm", later}, {"kind", later}});
    layer_costs layer;
    layer.costs = read_costs(at, found);
    if (layer.costs.gradients == gradient_kind::none) refuse_storage_without_backward(at, "layer", found);
    layer.storage = read_storage(at, layer.costs, found);
    layer.static_memory = memory_size{at.number_or("static_memory", 0.0)};
    layer.forward_comm = duration{at.number_or("forward_comm", 0.0)};
    layer.backward_comm = duration{at.number_or("backward_comm", 0.0)};
    layer.kind = at.string_or("kind", "");
    return layer;
}

/// All layers. A layer with a `count` is repeated in the result.
inline std::vector<layer_costs> read_layer_list(const fields& top, std::size_t version, violation_list& found) {
    std::vector<layer_costs> layers;
    std::vector<layer_costs> each;
    const auto* list = top.list("layers");
    if (!list) return layers;
    if (list->empty()) found.add("layers", "must hold at least one layer");
    for (std::size_t i = 0; i < list->size(); ++i) {
        const auto place = element_of("layers", i);
        if (!(*list)[i].is_object()) {
            refuse_type(found, place, "an object", (*list)[i]);
            continue;
        }
        const fields at{(*list)[i], place + ".", found};
        const auto layer = read_layer(at, version, found);
        const auto count = at.find("count") ? at.count("count", most_stages).value_or(1) : 1;
        if (count == 0) found.add(at.place("count"), "must be at least 1");
        if (layers.size() + count > most_stages) {
            found.add("layers", "are more than " + std::to_string(most_stages));
            break;
        }
        each.push_back(layer);
        layers.insert(layers.end(), count, layer);
    }
    if (!each.empty()) add_validated(found, validate_layers(each));
    if (found.empty()) add_validated(found, validate_sums(layers));
    return layers;
}

/// The number of stages per rank: 4 for "loop:4", 2 for "loop", else 0.
inline std::size_t loop_stages(std::string_view text) {
    constexpr std::string_view loop = "loop";
    if (text == loop) return 2;
    if (!text.starts_with("loop:")) return 0;
    const auto stages = parse_number<std::size_t>(text.substr(loop.size() + 1)).value_or(0);
    return stages <= most_stages ? stages : 0;
}

/// Reads a list with the rank of each stage.
inline std::optional<placement::map<>> read_placement_list(const json& list, std::size_t ranks,
                                                           const std::string& place, violation_list& found) {
    per_stage<rank> rank_of(list.size());
    std::vector<bool> used(ranks, false);
    for (const stage s : rank_of.indices()) {
        const auto at = element_of(place, s.position());
        const auto number = read_count(list[s.position()], at, std::numeric_limits<std::uint32_t>::max(), found);
        if (!number) return std::nullopt;
        if (*number >= ranks) {
            found.add(at, "is " + std::to_string(*number) + ", there are " + std::to_string(ranks) + " ranks");
            return std::nullopt;
        }
        used[*number] = true;
        rank_of[s] = rank{*number};
    }
    for (std::size_t r = 0; r < ranks; ++r)
        if (!used[r]) return found.add(place, "rank " + std::to_string(r) + " holds no stage"), std::nullopt;
    return placement::map<>{std::move(rank_of)};
}

/// The pipeline `p` with the given placement. Empty if the placement is invalid, or has more stages than layers.
inline std::optional<problem> read_placement(const json& value, const problem& p, std::size_t layers,
                                             const std::string& place, violation_list& found) {
    const auto ranks = p.graph.ranks();
    const auto with = [&](std::size_t stages, const auto& where) -> std::optional<problem> {
        if (stages <= layers) return where();
        found.add(place, "has " + std::to_string(stages) + " stages, there are " + std::to_string(layers) + " layers");
        return std::nullopt;
    };
    if (value.is_array())
        return with(value.size(), [&]() -> std::optional<problem> {
            const auto map = read_placement_list(value, ranks, place, found);
            return map ? std::optional{with_placement(p, *map)} : std::nullopt;
        });
    const auto text = value.is_string() ? value.get<std::string>() : std::string{};
    if (text == "linear") return with(ranks, [&] { return with_placement(p, placement::linear{}); });
    if (text == "v") return with(2 * ranks, [&] { return with_placement(p, placement::v{}); });
    if (const auto stages = loop_stages(text); stages > 0)
        return with(ranks * stages, [&] { return with_placement(p, placement::loop<>{stages}); });
    refuse_type(found, place, "\"linear\", \"loop\", \"loop:N\", \"v\", or a list with the rank of each stage", value);
    return std::nullopt;
}

inline std::vector<problem> read_placements(const fields& top, const problem& p, std::size_t layers,
                                            violation_list& found) {
    std::vector<problem> pipelines;
    if (!top.find("placements")) {
        const auto ranks = p.graph.ranks();
        if (ranks <= layers) return usual_placements(p, layers);
        found.add("ranks", "are " + std::to_string(ranks) + ", there are " + std::to_string(layers) + " layers");
        return pipelines;
    }
    const auto* list = top.list("placements");
    if (!list) return pipelines;
    if (list->empty()) found.add("placements", "must hold at least one");
    if (list->size() > most_placements) {
        found.add("placements", "are more than " + std::to_string(most_placements));
        return pipelines;
    }
    for (std::size_t i = 0; i < list->size(); ++i)
        if (auto placed = read_placement((*list)[i], p, layers, element_of("placements", i), found)) {
            const bool is_new = std::none_of(pipelines.begin(), pipelines.end(),
                                             [&](const problem& other) { return other.graph == placed->graph; });
            if (is_new) pipelines.push_back(*std::move(placed));
        }
    return pipelines;
}

/// The index of a layer, stage or rank. `validate_rules` later checks that the index is in range.
inline std::size_t read_index(const fields& at, const char* name) {
    return at.count(name, std::numeric_limits<std::uint32_t>::max()).value_or(0);
}

inline std::optional<std::vector<layer_edge>> read_layer_edges(const fields& top, violation_list& found) {
    const auto* value = top.find("edges");
    if (!value || value->is_null()) return std::nullopt;
    std::vector<layer_edge> edges;
    read_objects(top.list_if_any("edges"), "edges", found, [&](const fields& at, std::size_t) {
        at.refuse_unknown({"from", "to", "size", "held"});
        edges.push_back({read_index(at, "from"), read_index(at, "to"), at.number_or("size", 1.0),
                         memory_size{at.number_or("held", 0.0)}});
    });
    return edges;
}

inline std::vector<layer_pin> read_pins(const fields& top, violation_list& found) {
    std::vector<layer_pin> pins;
    read_objects(top.list_if_any("pins"), "pins", found, [&](const fields& at, std::size_t) {
        at.refuse_unknown({"layer", "stage", "rank"});
        const bool has_stage = at.find("stage");
        if (has_stage == (at.find("rank") != nullptr))
            found.add(at.place(has_stage ? "rank" : "stage"), has_stage ? "excludes stage: a pin names one of the two"
                                                                        : "is missing; a pin names it, or a rank");
        const auto layer = read_index(at, "layer");
        if (has_stage)
            pins.push_back({layer, stage{read_index(at, "stage")}});
        else if (at.find("rank"))
            pins.push_back({layer, rank{read_index(at, "rank")}});
    });
    return pins;
}

inline std::vector<std::vector<std::size_t>> read_together(const fields& top, violation_list& found) {
    std::vector<std::vector<std::size_t>> together;
    const auto* lists = top.list_if_any("together");
    for (std::size_t i = 0; lists && i < lists->size(); ++i) {
        const auto place = element_of("together", i);
        if (!(*lists)[i].is_array()) {
            refuse_type(found, place, "a list", (*lists)[i]);
            continue;
        }
        auto& layers = together.emplace_back();
        for (std::size_t j = 0; j < (*lists)[i].size(); ++j)
            layers.push_back(
                read_count((*lists)[i][j], element_of(place, j), std::numeric_limits<std::uint32_t>::max(), found)
                    .value_or(0));
    }
    return together;
}

/// The speed of each rank; empty if the field is missing.
inline std::vector<double> read_speeds(const fields& top, std::size_t ranks, violation_list& found) {
    std::vector<double> speeds;
    const auto* value = top.find("rank_speed");
    if (!value || value->is_null() || !has_entry_per_rank(*value, ranks, "rank_speed", found)) return speeds;
    for (std::size_t r = 0; r < ranks; ++r)
        speeds.push_back(read_number((*value)[r], element_of("rank_speed", r), found).value_or(1.0));
    return speeds;
}

inline std::vector<layer_pair> read_layer_pairs(const fields& top, violation_list& found) {
    std::vector<layer_pair> pairs;
    read_objects(top.list_if_any("layer_pairs"), "layer_pairs", found, [&](const fields& at, std::size_t) {
        at.refuse_unknown({"forward", "backward", "kind", "duration"});
        for (const char* name : {"forward", "backward"})
            static_cast<void>(at.required(name));
        const auto kind =
            at.choice<overlap_kind>("kind", {{{"B", overlap_kind::backward}, {"I", overlap_kind::backward_input}}});
        pairs.push_back(
            {at.string_or("forward", ""), at.string_or("backward", ""), kind, duration{at.number("duration", 1.0)}});
    });
    return pairs;
}

inline void refuse_unknown_of_layers(const fields& top, std::size_t version) {
    constexpr auto later = "belongs to optpipe.layers/2";
    constexpr auto stages = "belongs to optpipe.problem; here there are layers";
    if (version >= 2)
        top.refuse_unknown({"format",
                            "name",
                            "time_unit",
                            "memory_unit",
                            "ranks",
                            "microbatches",
                            "placements",
                            "layers",
                            "split_backward",
                            "full_backward",
                            "p2p",
                            "memory_limit",
                            "host_memory_limit",
                            "transfer",
                            "objective",
                            "edges",
                            "pins",
                            "together",
                            "rank_speed",
                            "contention",
                            "layer_pairs"},
                           {{"stages", stages}});
    else
        top.refuse_unknown({"format", "name", "time_unit", "memory_unit", "ranks", "microbatches", "placements",
                            "layers", "split_backward", "full_backward", "p2p", "memory_limit", "host_memory_limit",
                            "transfer", "objective"},
                           {{"stages", stages},
                            {"edges", later},
                            {"pins", later},
                            {"together", later},
                            {"rank_speed", later},
                            {"contention", later},
                            {"layer_pairs", later}});
}

/// Reads the list `microbatches`. Factors must be single numbers, because there are no stages yet.
inline void read_microbatches_of_layers(const json& list, problem& p, violation_list& found) {
    for (std::size_t m = 0; m < list.size(); ++m)
        for (const char* name : {"forward", "backward_input", "backward_weight", "memory", "message", "scale"})
            if (list[m].is_object() && list[m].contains(name) && list[m][name].is_array())
                found.add(element_of("microbatches", m) + "." + name,
                          "must be a number, as stages aren't known before layers are divided");
    if (found.empty()) read_microbatches(list, p, found);
}

inline partition_problem read_layers_tree(const json& root, const std::string& default_name, violation_list& found) {
    partition_problem result;
    if (!root.is_object()) return refuse_type(found, "", "an object", root), result;
    const fields top{root, "", found};
    const auto version = format_version(top, "optpipe.layers/", 2, found);
    if (version == 0) return result;
    refuse_unknown_of_layers(top, version);
    const auto ranks = top.count("ranks", most_ranks);
    const auto* listed = version >= 2 ? listed_microbatches(top) : nullptr;
    const auto microbatches = count_microbatches(top, listed, 3, found);
    result.layers = read_layer_list(top, version, found);
    if (ranks == 0U) found.add("ranks", "must be at least 1");
    if (!ranks || !microbatches || !found.empty()) return result;
    problem p{to_any_graph(graph<dynamic, dynamic>{*ranks, *microbatches}), per_stage<stage_costs>(*ranks)};
    read_ranks(top, *ranks, p, found);
    read_rest(top, default_name, p);
    if (listed) read_microbatches_of_layers(*listed, p, found);
    add_validated(found, validate_without_costs(p));
    result.edges = read_layer_edges(top, found);
    result.pins = read_pins(top, found);
    result.together = read_together(top, found);
    result.rank_speed = read_speeds(top, *ranks, found);
    result.contention = top.number_or("contention", 0.0);
    result.layer_pairs = read_layer_pairs(top, found);
    if (!found.empty()) return result;
    result.pipelines = read_placements(top, p, result.layers.size(), found);
    for (const auto& each : result.pipelines)
        if (*microbatches > most_stage_microbatches / each.graph.stages() && found.empty())
            found.add("microbatches", "times stages must be at most " + std::to_string(most_stage_microbatches));
    if (found.empty()) add_validated(found, validate_rules(result));
    return result;
}

} // namespace detail

OPTPIPE_INLINE partition_problem parse_layers(std::string_view text, const std::string& source_name) {
    detail::violation_list found;
    auto p = detail::read_layers_tree(detail::parse_json(text, source_name), detail::stem_of(source_name), found);
    if (!found.empty()) throw input_error{source_name, found.found()};
    return p;
}

OPTPIPE_INLINE partition_problem read_layers(const std::string& path) {
    return parse_layers(read_file(path, detail::most_problem_bytes), printable(path, 400));
}

} // namespace optpipe
#endif
