#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace optpipe {
namespace detail {

inline constexpr std::size_t most_problem_bytes = std::size_t{1} << 26U;

} // namespace detail

/// Reads the formats `optpipe.problem/1` to /3. Format /2 lacks graphs, pairs, frozen stages, attention keys and
/// values, and microbatches that differ. Format /1 has neither storage options nor anything that format /2 lacks.
/// Throws `input_error` with all violations, each with its field. If the text isn't JSON, the only violation has the
/// line and column. A problem without a name is named after its source. Without units, times are in ms and sizes in GB.
[[nodiscard]] problem parse_problem(std::string_view text, const std::string& source_name);

/// Reads a file with `parse_problem`. Throws `file_error` if the file can't be read or is larger than 64 MiB.
[[nodiscard]] problem read_problem(const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_graph.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/limits.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The parts of a problem that have been read. Parts that couldn't be read are empty.
struct problem_parts {
    std::optional<std::size_t> ranks;
    std::optional<std::size_t> microbatches;
    std::size_t version = 1; // version of the format
    std::vector<stage_costs> costs;
    std::vector<storage_list<false>> storage;
    std::vector<std::optional<std::size_t>> rank_of;
};

inline std::optional<transfer_times> read_transfer_times(const fields& at, violation_list& found) {
    const auto offload = at.number_if_any("offload");
    const auto reload = at.number_if_any("reload");
    if (offload && reload) return transfer_times{duration{*offload}, duration{*reload}};
    const auto given = [&](const char* name) { return at.find(name) && !at.find(name)->is_null(); };
    if (given("offload") && !given("reload")) found.add(at.place("reload"), "is missing, but offload is given");
    if (given("reload") && !given("offload")) found.add(at.place("offload"), "is missing, but reload is given");
    return std::nullopt;
}

inline storage_option read_storage_option(const fields& at, const stage_costs& costs, violation_list& found) {
    at.refuse_unknown({"name", "held", "recompute", "backward_extra", "transfer_size", "offload", "reload"});
    storage_option option;
    const auto* name = at.required("name");
    if (name && !name->is_string()) refuse_type(found, at.place("name"), "a string", *name);
    if (name && name->is_string()) option.name = name->get<std::string>();
    option.held = memory_size{at.number_or("held", costs.activation.value())};
    option.recompute = duration{at.number_or("recompute", 0.0)};
    option.backward_extra = duration{at.number_or("backward_extra", 0.0)};
    option.transfer_size = memory_size{at.number_or("transfer_size", 0.0)};
    option.transfer = read_transfer_times(at, found);
    const auto is_given = [&](const char* time) { return at.find(time) && !at.find(time)->is_null(); };
    if (!option.transfer && (is_given("offload") || is_given("reload"))) option.transfer_size = {}; // already reported
    return option;
}

/// The storage options of a stage or layer. If the stage or layer has no list of options, `costs` determine the
/// options.
inline storage_list<false> read_storage(const fields& at, const stage_costs& costs, violation_list& found) {
    const auto* list = at.find("storage") ? at.list("storage") : nullptr;
    if (!list) return described_storage(costs);
    const auto refuse = [&](const std::string& reason) { found.add(at.place("storage"), reason); };
    if (list->empty()) refuse("must hold at least one option");
    if (list->size() > most_storage_options)
        refuse("holds " + std::to_string(list->size()) + " options, at most " + std::to_string(most_storage_options) +
               " are possible");
    if (list->empty() || list->size() > most_storage_options) return described_storage(costs);
    if (costs.transfer) refuse("excludes offload and reload of the stage, which are short for two options");
    storage_list<false> given;
    read_objects(list, at.place("storage"), found,
                 [&](const fields& of, std::size_t) { given.push_back(read_storage_option(of, costs, found)); });
    return given;
}

/// Reads the costs of a stage or layer.
inline stage_costs read_costs(const fields& at, violation_list& found) {
    stage_costs c;
    if (at.find("backward"))
        c.gradients = at.choice<gradient_kind, 3>(
            "backward",
            {{{"full", gradient_kind::full}, {"input", gradient_kind::input}, {"none", gradient_kind::none}}});
    const bool is_full = c.gradients == gradient_kind::full;
    const bool has_input = c.gradients != gradient_kind::none;
    c.forward = duration{at.number("forward", 1.0)};
    c.backward_input = duration{has_input ? at.number("backward_input", 1.0) : at.number_or("backward_input", 0.0)};
    c.backward_weight = duration{is_full ? at.number("backward_weight", 1.0) : at.number_or("backward_weight", 0.0)};
    c.activation = memory_size{at.number("activation", 0.0)};
    c.weight_stash = memory_size{at.number_or("weight_stash", is_full ? 0.5 * c.activation.value() : 0.0)};
    c.kv = memory_size{at.number_or("kv", 0.0)};
    c.transfer = read_transfer_times(at, found);
    return c;
}

/// Reports fields for storage options if the stage or layer has no backward.
inline void refuse_storage_without_backward(const fields& at, const char* of, violation_list& found) {
    for (const char* name : {"storage", "offload", "reload"})
        if (const auto* given = at.find(name); given && !given->is_null())
            found.add(at.place(name), std::string{"is not for a "} + of + " with backward \"none\"");
}

inline stage_costs read_stage(const fields& at, std::size_t version, storage_list<false>& options,
                              violation_list& found) {
    constexpr auto later = "belongs to optpipe.problem/3";
    if (version >= 3)
        at.refuse_unknown({"rank", "forward", "backward_input", "backward_weight", "activation", "weight_stash",
                           "offload", "reload", "storage", "backward", "kv"});
    else if (version == 2)
        at.refuse_unknown({"rank", "forward", "backward_input", "backward_weight", "activation", "weight_stash",
                           "offload", "reload", "storage"},
                          {{"backward", later}, {"kv", later}});
    else
        at.refuse_unknown(
            {"rank", "forward", "backward_input", "backward_weight", "activation", "weight_stash", "offload", "reload"},
            {{"storage", "storage options belong to optpipe.problem/2"}, {"backward", later}, {"kv", later}});
    const auto c = read_costs(at, found);
    options = version >= 2 ? read_storage(at, c, found) : described_storage(c);
    if (c.gradients == gradient_kind::none) refuse_storage_without_backward(at, "stage", found);
    return c;
}

inline void read_stages(const fields& top, problem_parts& parts, violation_list& found) {
    const auto* list = top.list("stages");
    if (!list) return;
    if (list->size() > most_stages) {
        found.add("stages", "holds " + std::to_string(list->size()) + ", at most " + std::to_string(most_stages) +
                                " are possible");
        return;
    }
    parts.costs.resize(list->size());
    parts.storage.resize(list->size());
    parts.rank_of.resize(list->size());
    read_objects(list, "stages", found, [&](const fields& at, std::size_t s) {
        parts.costs[s] = read_stage(at, parts.version, parts.storage[s], found);
        parts.rank_of[s] = at.count("rank", std::numeric_limits<std::uint32_t>::max());
    });
}

inline memory_size read_limit(const json& value, const std::string& place, violation_list& found) {
    if (value.is_null()) return memory_size::unlimited();
    const auto number = read_number(value, place, found);
    if (number && *number >= 0.0) return memory_size{*number};
    if (number) found.add(place, "must not be negative, is " + shown(value));
    return memory_size::unlimited();
}

/// Whether `list` is a list with one entry per rank. If the result is false, adds a violation.
inline bool has_entry_per_rank(const json& list, std::size_t ranks, const std::string& place, violation_list& found) {
    if (!list.is_array())
        refuse_type(found, place, "a list", list);
    else if (list.size() != ranks)
        found.add(place,
                  "has " + std::to_string(list.size()) + " entries, there are " + std::to_string(ranks) + " ranks");
    return list.is_array() && list.size() == ranks;
}

inline void read_limits(const fields& top, const char* name, per_rank<memory_size>& limits, violation_list& found) {
    const auto* value = top.find(name);
    if (!value) return;
    if (!value->is_array()) {
        const auto all = read_limit(*value, name, found);
        for (auto& limit : limits)
            limit = all;
        return;
    }
    if (!has_entry_per_rank(*value, limits.size(), name, found)) return;
    for (const rank r : limits.indices())
        limits[r] = read_limit((*value)[r.position()], element_of(name, r.position()), found);
}

inline hop_times<> read_hops(const fields& top, std::size_t ranks, violation_list& found) {
    const auto* value = top.find("p2p");
    if (!value) return {};
    if (!value->is_array()) {
        const auto number = read_number(*value, "p2p", found);
        return hop_times<>{duration{number.value_or(0.0)}};
    }
    if (!has_entry_per_rank(*value, ranks, "p2p", found)) return {};
    bounded_vector<duration, dynamic> matrix;
    for (std::size_t a = 0; a < ranks; ++a) {
        const auto row = element_of("p2p", a);
        if (!has_entry_per_rank((*value)[a], ranks, row, found)) return {};
        for (std::size_t b = 0; b < ranks; ++b)
            matrix.push_back(duration{read_number((*value)[a][b], element_of(row, b), found).value_or(0.0)});
    }
    return {ranks, std::move(matrix)};
}

inline void read_link(const json& group, const std::string& place, std::vector<bool>& named, transfer_rules<>& rules,
                      violation_list& found) {
    if (!group.is_array()) return refuse_type(found, place, "a list", group);
    std::optional<rank> first;
    for (std::size_t i = 0; i < group.size(); ++i) {
        const auto at = element_of(place, i);
        const auto number = read_count(group[i], at, std::numeric_limits<std::uint32_t>::max(), found);
        if (!number) continue;
        const auto who = "rank " + std::to_string(*number);
        if (*number >= named.size()) {
            found.add(at, "is " + std::to_string(*number) + ", there are " + std::to_string(named.size()) + " ranks");
        } else if (named[*number]) {
            found.add(at, who + " is already on a link");
        } else {
            named[*number] = true;
            if (!first) first = rank{*number};
            rules.share_link(*first, rank{*number});
        }
    }
}

inline transfer_rules<> read_transfer(const fields& top, std::size_t ranks, violation_list& found) {
    transfer_rules<> rules{ranks};
    const auto* value = top.find("transfer");
    if (!value) return rules;
    if (!value->is_object()) {
        refuse_type(found, "transfer", "an object", *value);
        return rules;
    }
    const fields at{*value, "transfer.", found};
    at.refuse_unknown({"engines", "links", "duplex"});
    if (at.find("engines"))
        // `validate` refuses all numbers except 1 and 2.
        rules.engines = static_cast<int>(at.count("engines", std::size_t{1} << 30U).value_or(1));
    rules.duplex = at.choice<duplex_kind>("duplex", {{{"full", duplex_kind::full}, {"half", duplex_kind::half}}});
    if (!at.find("links")) return rules;
    const auto* links = at.list("links");
    std::vector<bool> named(ranks, false);
    for (std::size_t i = 0; links && i < links->size(); ++i)
        read_link((*links)[i], element_of("transfer.links", i), named, rules, found);
    return rules;
}

/// Makes a graph from its parts. Empty if a part is missing, or if the graph is too large.
inline std::optional<any_graph> read_graph(const fields& top, const problem_parts& parts, violation_list& found) {
    const bool placed = std::all_of(parts.rank_of.begin(), parts.rank_of.end(), [](auto r) { return r.has_value(); });
    if (!parts.ranks || !parts.microbatches || !placed || parts.costs.empty()) return std::nullopt;
    if (*parts.microbatches > most_stage_microbatches / parts.costs.size()) {
        found.add("microbatches", "times stages must be at most " + std::to_string(most_stage_microbatches));
        return std::nullopt;
    }
    per_stage<rank> ranks(parts.costs.size());
    for (const stage s : ranks.indices())
        ranks[s] = rank{*parts.rank_of[s.position()]};
    return any_graph{*parts.ranks, *parts.microbatches, placement::map<>{std::move(ranks)},
                     read_edges(top, parts.costs.size(), found)};
}

/// Reads the fields about ranks: message times, transfer rules, memory limits.
inline void read_ranks(const fields& top, std::size_t ranks, problem& p, violation_list& found) {
    p.p2p = read_hops(top, ranks, found);
    p.transfer = read_transfer(top, ranks, found);
    p.memory_limit = per_rank<memory_size>(ranks, memory_size::unlimited());
    p.host_memory_limit = p.memory_limit;
    read_limits(top, "memory_limit", p.memory_limit, found);
    read_limits(top, "host_memory_limit", p.host_memory_limit, found);
}

inline void read_rest(const fields& top, const std::string& default_name, problem& p) {
    p.split_backward = top.bool_or("split_backward", true);
    p.full_backward = top.bool_or("full_backward", true);
    p.objective = top.choice<objective_kind>(
        "objective", {{{"makespan", objective_kind::makespan}, {"span", objective_kind::span}}});
    p.name = top.string_or("name", default_name);
    p.time_unit = top.string_or("time_unit", "ms");
    p.memory_unit = top.string_or("memory_unit", "GB");
}

inline void refuse_unknown_of_problem(const fields& top, std::size_t version) {
    constexpr auto later = "belongs to optpipe.problem/3";
    if (version >= 3)
        top.refuse_unknown({"format", "name", "time_unit", "memory_unit", "ranks", "microbatches", "stages",
                            "split_backward", "full_backward", "p2p", "memory_limit", "host_memory_limit", "transfer",
                            "objective", "edges", "groups", "overlaps"});
    else
        top.refuse_unknown({"format", "name", "time_unit", "memory_unit", "ranks", "microbatches", "stages",
                            "split_backward", "full_backward", "p2p", "memory_limit", "host_memory_limit", "transfer",
                            "objective"},
                           {{"edges", later}, {"groups", later}, {"overlaps", later}});
}

/// The field `microbatches` if it is a list, otherwise null.
inline const json* listed_microbatches(const fields& top) {
    const auto* value = top.find("microbatches");
    return value && value->is_array() ? value : nullptr;
}

/// The number of microbatches. `listed` is the list of microbatches, or null if the field is a number.
inline std::optional<std::size_t> count_microbatches(const fields& top, const json* listed, std::size_t version,
                                                     violation_list& found) {
    if (!listed) return top.count("microbatches", most_stage_microbatches);
    if (version < 3) found.add("microbatches", "a list belongs to optpipe.problem/3");
    if (listed->empty()) found.add("microbatches", "must hold at least one microbatch");
    return listed->size();
}

/// Reads the problem. The result may only be used if no violation was found.
inline problem read_problem_tree(const json& root, const std::string& default_name, violation_list& found) {
    if (!root.is_object()) return refuse_type(found, "", "an object", root), problem{};
    const fields top{root, "", found};
    const auto version = format_version(top, "optpipe.problem/", 3, found);
    if (version == 0) return {};
    refuse_unknown_of_problem(top, version);
    problem_parts parts;
    parts.version = version;
    parts.ranks = top.count("ranks", most_ranks);
    const auto* listed = listed_microbatches(top);
    parts.microbatches = count_microbatches(top, listed, version, found);
    read_stages(top, parts, found);
    if (parts.costs.empty() && found.empty()) found.add("stages", "must hold at least one stage");

    const auto graph = read_graph(top, parts, found);
    problem p;
    if (graph) {
        per_stage<stage_costs> costs(parts.costs.size());
        for (const stage s : costs.indices())
            costs[s] = parts.costs[s.position()];
        p = problem{*graph, costs};
        for (const stage s : p.storage.indices())
            p.set_storage(s, parts.storage[s.position()]);
        if (listed && version >= 3) read_microbatches(*listed, p, found);
        read_groups(top, p, found);
        read_overlaps(top, p, found);
    }
    if (parts.ranks) read_ranks(top, *parts.ranks, p, found);
    read_rest(top, default_name, p);
    if (!graph) return p;
    add_validated(found, found.empty() ? validate(p) : validate_values(p));
    return p;
}

/// A source's file name without folder and extension, such as "llama" for "models/llama.json".
inline std::string stem_of(std::string_view source) {
    source.remove_prefix(source.find_last_of('/') + 1);
    return std::string{source.substr(0, source.rfind(".json"))};
}

} // namespace detail

OPTPIPE_INLINE problem parse_problem(std::string_view text, const std::string& source_name) {
    detail::violation_list found;
    auto p = detail::read_problem_tree(detail::parse_json(text, source_name), detail::stem_of(source_name), found);
    if (!found.empty()) throw input_error{source_name, found.found()};
    return p;
}

OPTPIPE_INLINE problem read_problem(const std::string& path) {
    return parse_problem(read_file(path, detail::most_problem_bytes), printable(path, 400));
}

} // namespace optpipe
#endif
