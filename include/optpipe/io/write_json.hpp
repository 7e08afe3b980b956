#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <string>

namespace optpipe {

/// The problem in the format `optpipe.problem/3`, with one stage per line. Simpler problems are written in /2 or /1.
/// Reading the text returns the same problem, bit for bit.
[[nodiscard]] std::string problem_to_json(const problem& p);

/// The layers in the format `optpipe.layers/2`, or in /1 if possible. Each line is one kind of layer, and each
/// placement lists the ranks of its stages. Reading the text returns the same layers and pipelines. Contract: at least
/// one pipeline.
[[nodiscard]] std::string layers_to_json(const partition_problem& p);

/// Writes the format `optpipe.schedule/3` for schedules with pairs, and /2 or /1 otherwise. Format /1 is used if costs
/// describe all storage options and there are backwards. Each line is one operation or pair, ordered by start.
[[nodiscard]] std::string schedule_to_json(const problem& p, const schedule_report& report);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe {
namespace detail {

/// The number as JSON. JSON has no infinity, so an unlimited or unknown number becomes null. Negative zero becomes
/// `-0.0`, because `-0` would be read as an integer.
inline std::string json_number(double value) {
    if (value == 0.0 && std::signbit(value)) return "-0.0";
    return std::isfinite(value) ? exact_number(value) : "null";
}

template <class Tag> std::string json_number(const std::optional<quantity<Tag>>& value) {
    return value ? json_number(value->value()) : "null";
}

inline std::string joined(const std::vector<std::string>& pieces, std::string_view separator) {
    std::string text;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        text.append(i == 0 ? "" : separator).append(pieces[i]);
    return text;
}

template <class Sizes> std::string json_sizes(const Sizes& sizes) {
    std::vector<std::string> texts;
    for (const auto size : sizes)
        texts.push_back(json_number(size.value()));
    return "[" + joined(texts, ", ") + "]";
}

inline std::string json_transfer(const std::optional<transfer_times>& transfer) {
    return ", \"offload\": " + (transfer ? json_number(transfer->offload.value()) : "null") +
           ", \"reload\": " + (transfer ? json_number(transfer->reload.value()) : "null");
}

inline std::string json_storage(const storage_list<false>& options) {
    std::vector<std::string> texts;
    for (const auto& o : options) {
        std::string text = "{ \"name\": " + json_quoted(o.name.view()) + ", \"held\": " + json_number(o.held.value());
        if (o.recomputes()) text += ", \"recompute\": " + json_number(o.recompute.value());
        if (o.backward_extra > duration{}) text += ", \"backward_extra\": " + json_number(o.backward_extra.value());
        if (o.transfer)
            text += ", \"transfer_size\": " + json_number(o.transfer_size.value()) + json_transfer(o.transfer);
        texts.push_back(text + " }");
    }
    return "[\n        " + joined(texts, ",\n        ") + " ]";
}

[[nodiscard]] constexpr std::string_view spelling(gradient_kind kind) {
    switch (kind) {
    case gradient_kind::full: return "full";
    case gradient_kind::input: return "input";
    case gradient_kind::none: return "none";
    }
    return "?";
}

/// The costs of a stage or layer. The options are listed only if the costs don't already describe all options. `first`
/// is a field to write before the costs.
inline std::string json_costs(const std::string& first, const stage_costs& c, const storage_list<false>& options) {
    const auto field = [](const char* name, const std::string& value) {
        return ", \"" + std::string{name} + "\": " + value;
    };
    return "{ " + first + field("forward", json_number(c.forward.value())) +
           field("backward_input", json_number(c.backward_input.value())) +
           field("backward_weight", json_number(c.backward_weight.value())) +
           field("activation", json_number(c.activation.value())) +
           field("weight_stash", json_number(c.weight_stash.value())) +
           (c.gradients == gradient_kind::full ? "" : field("backward", json_quoted(spelling(c.gradients)))) +
           (c.kv > memory_size{} ? field("kv", json_number(c.kv.value())) : "") +
           (c.gradients == gradient_kind::none  ? ""
            : is_described_by_costs(c, options) ? json_transfer(options.back().transfer)
                                                : field("storage", json_storage(options))) +
           " }";
}

inline std::string json_stages(const problem& p) {
    std::vector<std::string> stages;
    for (const stage s : p.graph.all_stages())
        stages.push_back(json_costs("\"rank\": " + std::to_string(p.rank_of(s).value()), p.costs[s], p.storage[s]));
    return "[\n    " + joined(stages, ",\n    ") + " ]";
}

/// The communication times of a layer, and the layer's kind.
inline std::string json_comm(const layer_costs& layer) {
    std::string text;
    if (layer.forward_comm > duration{}) text += ", \"forward_comm\": " + json_number(layer.forward_comm.value());
    if (layer.backward_comm > duration{}) text += ", \"backward_comm\": " + json_number(layer.backward_comm.value());
    if (!layer.kind.empty()) text += ", \"kind\": " + json_quoted(layer.kind);
    return text;
}

/// The layers. Consecutive equal layers are written as one entry with a count.
inline std::string json_layers(const std::vector<layer_costs>& layers) {
    std::vector<std::string> texts;
    for (auto first = layers.begin(); first != layers.end();) {
        const auto next = std::find_if(first, layers.end(), [&](const layer_costs& l) { return !(l == *first); });
        texts.push_back(json_costs("\"count\": " + std::to_string(next - first) + ", \"static_memory\": " +
                                       json_number(first->static_memory.value()) + json_comm(*first),
                                   first->costs, listed_storage(*first)));
        first = next;
    }
    return "[\n    " + joined(texts, ",\n    ") + " ]";
}

inline std::string json_placements(const std::vector<problem>& pipelines) {
    std::vector<std::string> texts;
    for (const auto& p : pipelines) {
        std::vector<std::string> ranks;
        for (const stage s : p.graph.all_stages())
            ranks.push_back(std::to_string(p.rank_of(s).value()));
        texts.push_back("[" + joined(ranks, ", ") + "]");
    }
    return "[\n    " + joined(texts, ",\n    ") + " ]";
}

using json_fields = std::vector<std::pair<std::string, std::string>>;

inline std::string json_edge(const std::string& from, const std::string& to, double size, memory_size held) {
    auto text = "{ \"from\": " + from + ", \"to\": " + to;
    if (size != 1.0) text += ", \"size\": " + json_number(size);
    if (held > memory_size{}) text += ", \"held\": " + json_number(held.value());
    return text + " }";
}

/// The fields that only `optpipe.layers/2` has: edges, pins, layers that must stay together, speeds, contention, and
/// pairs of layers.
inline json_fields json_rules(const partition_problem& p) {
    const auto list = [](const auto& all, const auto& text_of) {
        std::vector<std::string> texts;
        for (const auto& each : all)
            texts.push_back(text_of(each));
        return "[" + joined(texts, ", ") + "]";
    };
    json_fields rules;
    if (p.edges)
        rules.emplace_back("edges", list(*p.edges, [](const layer_edge& e) {
                               return json_edge(std::to_string(e.from), std::to_string(e.to), e.size, e.held);
                           }));
    if (!p.pins.empty())
        rules.emplace_back("pins", list(p.pins, [](const layer_pin& pin) {
                               const auto* const s = std::get_if<stage>(&pin.where);
                               const auto at = s ? s->value() : std::get<rank>(pin.where).value();
                               return "{ \"layer\": " + std::to_string(pin.layer) +
                                      (s ? ", \"stage\": " : ", \"rank\": ") + std::to_string(at) + " }";
                           }));
    if (!p.together.empty())
        rules.emplace_back("together", list(p.together, [&](const std::vector<std::size_t>& layers) {
                               return list(layers, [](std::size_t layer) { return std::to_string(layer); });
                           }));
    if (!p.rank_speed.empty())
        rules.emplace_back("rank_speed", list(p.rank_speed, [](double speed) { return json_number(speed); }));
    if (p.contention > 0.0) rules.emplace_back("contention", json_number(p.contention));
    if (!p.layer_pairs.empty())
        rules.emplace_back("layer_pairs", list(p.layer_pairs, [](const layer_pair& each) {
                               return "{ \"forward\": " + json_quoted(each.forward) +
                                      ", \"backward\": " + json_quoted(each.backward) +
                                      (each.kind == overlap_kind::backward ? "" : ", \"kind\": \"I\"") +
                                      ", \"duration\": " + json_number(each.duration.value()) + " }";
                           }));
    return rules;
}

inline std::string json_hops(const problem& p) {
    if (p.p2p.is_uniform()) return json_number(p.p2p.uniform().value());
    std::vector<std::string> rows;
    for (const rank a : p.graph.all_ranks()) {
        std::vector<duration> row;
        for (const rank b : p.graph.all_ranks())
            row.push_back(p.p2p(a, b));
        rows.push_back(json_sizes(row));
    }
    return "[\n    " + joined(rows, ",\n    ") + " ]";
}

/// The groups of ranks that share a link, ordered by first rank.
inline std::vector<std::vector<rank>> shared_links(const problem& p) {
    std::vector<std::vector<rank>> of_link(p.graph.ranks());
    for (const rank r : p.graph.all_ranks()) {
        const auto& link = p.transfer.link;
        const auto first = std::find(link.begin(), link.end(), link[r]) - link.begin();
        of_link[static_cast<std::size_t>(first)].push_back(r);
    }
    std::erase_if(of_link, [](const auto& group) { return group.size() < 2; });
    return of_link;
}

inline std::string json_links(const problem& p) {
    std::vector<std::string> groups;
    for (const auto& group : shared_links(p)) {
        std::vector<std::string> ranks;
        for (const rank r : group)
            ranks.push_back(std::to_string(r.value()));
        groups.push_back("[" + joined(ranks, ", ") + "]");
    }
    return "[" + joined(groups, ", ") + "]";
}

[[nodiscard]] constexpr std::string_view spelling(duplex_kind kind) {
    switch (kind) {
    case duplex_kind::full: return "full";
    case duplex_kind::half: return "half";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view spelling(objective_kind kind) {
    switch (kind) {
    case objective_kind::makespan: return "makespan";
    case objective_kind::span: return "span";
    }
    return "?";
}

inline std::string json_object(const json_fields& fields) {
    std::vector<std::string> lines;
    for (const auto& [name, value] : fields)
        lines.push_back("\"" + name + "\": " + value);
    return "{ " + joined(lines, ",\n  ") + " }\n";
}

inline std::string json_edges(const problem& p) {
    std::vector<std::string> texts;
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            texts.push_back(json_edge(std::to_string(e.from.value()), std::to_string(e.to.value()), e.size, e.held));
        });
    return texts.empty() ? "[]" : "[\n    " + joined(texts, ",\n    ") + " ]";
}

inline std::string json_groups(const problem& p) {
    std::vector<std::string> texts;
    p.groups.for_each_group([&](const std::vector<stage>& stages, duration delay) {
        std::vector<std::string> members;
        for (const stage s : stages)
            members.push_back(std::to_string(s.value()));
        texts.push_back("{ \"stages\": [" + joined(members, ", ") + "], \"delay\": " + json_number(delay.value()) +
                        " }");
    });
    return "[" + joined(texts, ", ") + "]";
}

inline std::string json_overlaps(const problem& p) {
    std::vector<std::string> texts;
    for (const overlap& each : p.overlaps) {
        auto text = "{ \"forward\": " + std::to_string(each.forward.value()) +
                    ", \"backward\": " + std::to_string(each.backward.value());
        if (each.kind == overlap_kind::backward_input) text += ", \"kind\": \"I\"";
        text += ", \"duration\": " + json_number(each.duration.value());
        if (each.memory > memory_size{}) text += ", \"memory\": " + json_number(each.memory.value());
        texts.push_back(text + " }");
    }
    return "[\n    " + joined(texts, ",\n    ") + " ]";
}

/// A microbatch's factor: one number if equal for all stages, otherwise a list.
inline std::string json_factor(const problem& p, microbatch m, double cost_factors::*which) {
    std::vector<std::string> by_stage;
    for (const stage s : p.graph.all_stages())
        by_stage.push_back(json_number(p.microbatches.factors(s, m).*which));
    const bool is_one = std::all_of(by_stage.begin(), by_stage.end(), [&](const auto& x) { return x == by_stage[0]; });
    return is_one ? by_stage[0] : "[" + joined(by_stage, ", ") + "]";
}

inline std::string json_microbatches(const problem& p) {
    if (p.microbatches.are_equal()) return std::to_string(p.graph.microbatches());
    std::vector<std::string> texts;
    microbatch first{};
    for (const microbatch m : p.graph.all_microbatches()) {
        if (!p.microbatches.slice_before(m)) first = m;
        std::vector<std::string> parts;
        if (p.microbatches.is_slice(m)) parts.push_back("\"sequence\": " + std::to_string(first.value()));
        const auto add = [&](const char* name, double cost_factors::*which) {
            const auto value = json_factor(p, m, which);
            if (value != json_number(1.0)) parts.push_back("\"" + std::string{name} + "\": " + value);
        };
        add("forward", &cost_factors::forward);
        add("backward_input", &cost_factors::backward_input);
        add("backward_weight", &cost_factors::backward_weight);
        add("memory", &cost_factors::memory);
        add("message", &cost_factors::message);
        texts.push_back(parts.empty() ? "{}" : "{ " + joined(parts, ", ") + " }");
    }
    return "[\n    " + joined(texts, ",\n    ") + " ]";
}

/// The fields of a problem or of layers. `parts` are the fields of the stages or layers.
inline std::string json_pipeline(const problem& p, std::string_view format, const json_fields& parts) {
    const std::string transfer = "{ \"engines\": " + std::to_string(p.transfer.engines) +
                                 ", \"links\": " + json_links(p) + ", \"duplex\": \"" +
                                 std::string{spelling(p.transfer.duplex)} + "\" }";
    json_fields all{{"format", json_quoted(format)},
                    {"name", json_quoted(p.name)},
                    {"time_unit", json_quoted(p.time_unit)},
                    {"memory_unit", json_quoted(p.memory_unit)},
                    {"ranks", std::to_string(p.graph.ranks())},
                    {"microbatches", json_microbatches(p)}};
    all.insert(all.end(), parts.begin(), parts.end());
    all.emplace_back("split_backward", p.split_backward ? "true" : "false");
    if (!p.full_backward) all.emplace_back("full_backward", "false");
    all.insert(all.end(), {{"p2p", json_hops(p)},
                           {"memory_limit", json_sizes(p.memory_limit)},
                           {"host_memory_limit", json_sizes(p.host_memory_limit)},
                           {"transfer", transfer},
                           {"objective", json_quoted(spelling(p.objective))}});
    if (!p.graph.is_chain()) all.emplace_back("edges", json_edges(p));
    if (!p.groups.empty()) all.emplace_back("groups", json_groups(p));
    if (!p.overlaps.empty()) all.emplace_back("overlaps", json_overlaps(p));
    return json_object(all);
}

inline std::string json_operations(const problem& p, const schedule& s) {
    auto sorted = s.operations;
    std::sort(sorted.begin(), sorted.end(), starts_before);
    std::map<operation, std::string> pairs; // each pair's spelling under its forward, and an empty text under its
                                            // backward
    for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
        pairs[f.op] = to_string(operation_pair{f.op, b.op});
        pairs[b.op];
    });
    std::string text = "[";
    for (const auto& timed : sorted) {
        const auto pair = pairs.find(timed.op);
        if (pair != pairs.end() && pair->second.empty()) continue;
        text += text.size() == 1 ? "\n    " : ",\n    ";
        const auto name = pair == pairs.end() ? to_string(timed.op) : pair->second;
        text += "{ \"op\": \"" + name + "\", \"start\": " + json_number(timed.start.value()) +
                ", \"end\": " + json_number(timed.end.value());
        // The written schedule need not be valid.
        const auto& op = timed.op;
        const bool is_stored = op.kind == operation_kind::forward && op.stage.position() < p.graph.stages() &&
                               op.storage < p.storage_options(op.stage) &&
                               !is_described_by_costs(p.costs[op.stage], p.storage[op.stage]);
        if (is_stored) text += ", \"storage\": " + json_quoted(storage_of(p, timed.op).name.view());
        text += " }";
    }
    return text + " ]";
}

} // namespace detail

OPTPIPE_INLINE std::string problem_to_json(const problem& p) {
    const bool has_kv = std::any_of(p.costs.begin(), p.costs.end(), [](const auto& c) { return c.kv > memory_size{}; });
    const auto* format = !is_plain(p) || has_kv     ? "optpipe.problem/3"
                         : is_described_by_costs(p) ? "optpipe.problem/1"
                                                    : "optpipe.problem/2";
    return detail::json_pipeline(p, format, {{"stages", detail::json_stages(p)}});
}

OPTPIPE_INLINE std::string layers_to_json(const partition_problem& p) {
    OPTPIPE_EXPECT(!p.pipelines.empty(), "layers_to_json: a pipeline at least");
    detail::json_fields parts{{"placements", detail::json_placements(p.pipelines)},
                              {"layers", detail::json_layers(p.layers)}};
    const auto rules = detail::json_rules(p);
    parts.insert(parts.end(), rules.begin(), rules.end());
    const bool are_first = rules.empty() && p.pipelines.front().microbatches.are_equal() &&
                           std::all_of(p.layers.begin(), p.layers.end(), [](const layer_costs& each) {
                               return each.costs.gradients == gradient_kind::full && each.costs.kv == memory_size{} &&
                                      detail::json_comm(each).empty();
                           });
    return detail::json_pipeline(p.pipelines.front(), are_first ? "optpipe.layers/1" : "optpipe.layers/2", parts);
}

OPTPIPE_INLINE std::string schedule_to_json(const problem& p, const schedule_report& report) {
    const auto gap = report.gap();
    const bool is_second = !is_described_by_costs(p) || report.forward_only;
    const auto* format = has_pairs(report.schedule.operations) ? "\"optpipe.schedule/3\""
                         : is_second                           ? "\"optpipe.schedule/2\""
                                                               : "\"optpipe.schedule/1\"";
    detail::json_fields fields{
        {"format", format}, {"problem", json_quoted(p.name)}, {"method", json_quoted(report.method)}};
    if (report.forward_only) fields.emplace_back("forward_only", "true");
    fields.insert(fields.end(), {{"objective", detail::json_number(report.measures.objective.value())},
                                 {"bound", detail::json_number(report.bound)},
                                 {"gap", gap ? detail::json_number(*gap) : "null"},
                                 {"bubble_rate", detail::json_number(report.measures.bubble_rate)},
                                 {"peak_memory", detail::json_sizes(report.measures.peak_memory)},
                                 {"operations", detail::json_operations(p, report.schedule)}});
    return detail::json_object(fields);
}

} // namespace optpipe
#endif
