#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/limits.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

// The fields that only `optpipe.problem/3` has: edges, groups, pairs, and microbatches that differ.
namespace optpipe::detail {

/// The stage whose index is `value`. If the index is out of range, returns nothing and adds a violation.
inline std::optional<stage> read_stage_index(const json& value, const std::string& place, std::size_t stages,
                                             violation_list& found) {
    const auto index = read_count(value, place, std::numeric_limits<std::uint32_t>::max(), found);
    if (index && *index >= stages)
        found.add(place, "is " + std::to_string(*index) + ", there are " + std::to_string(stages) + " stages");
    return index && *index < stages ? std::optional{stage{*index}} : std::nullopt;
}

inline std::optional<edge> read_edge(const fields& at, std::size_t stages, violation_list& found) {
    at.refuse_unknown({"from", "to", "size", "held"});
    const auto end = [&](const char* name) {
        const auto* value = at.required(name);
        return value ? read_stage_index(*value, at.place(name), stages, found) : std::nullopt;
    };
    const auto from = end("from");
    const auto to = end("to");
    const double size = at.number_or("size", 1.0);
    const double held = at.number_or("held", 0.0);
    if (!from || !to) return std::nullopt;
    if (*from < *to) return edge{*from, *to, size, memory_size{held}};
    found.add(at.place("to"),
              "is " + std::to_string(to->value()) + ", must be after from, " + std::to_string(from->value()));
    return std::nullopt;
}

/// The edges in the field `edges`. Edges that can't be read are reported and left out. Without the field, the stages
/// form a chain.
inline edges::any read_edges(const fields& top, std::size_t stages, violation_list& found) {
    const auto* list = top.list_if_any("edges");
    if (!list) return {};
    std::vector<edge> all;
    std::set<std::pair<stage, stage>> pairs;
    read_objects(list, "edges", found, [&](const fields& at, std::size_t i) {
        const auto each = read_edge(at, stages, found);
        if (each && !pairs.insert({each->from, each->to}).second)
            found.add(element_of("edges", i), "is the second edge from stage " + std::to_string(each->from.value()) +
                                                  " to stage " + std::to_string(each->to.value()));
        else if (each)
            all.push_back(*each);
    });
    return {stages, std::move(all)};
}

inline void read_group(const fields& at, problem& p, violation_list& found) {
    at.refuse_unknown({"stages", "delay"});
    const auto* list = at.list("stages");
    if (list && list->empty()) found.add(at.place("stages"), "must hold at least one stage");
    const auto delay = at.number_or("delay", 0.0);
    std::vector<stage> members;
    for (std::size_t i = 0; list && i < list->size(); ++i) {
        const auto place = element_of(at.place("stages"), i);
        const auto member = read_stage_index((*list)[i], place, p.graph.stages(), found);
        if (!member) continue;
        const bool is_again = std::find(members.begin(), members.end(), *member) != members.end();
        if (is_again || p.groups.has(*member))
            found.add(place, "stage " + std::to_string(member->value()) + " is in a group already");
        else
            members.push_back(*member);
    }
    p.groups.add(members, duration{delay}, p.graph.stages());
}

inline void read_groups(const fields& top, problem& p, violation_list& found) {
    read_objects(top.list_if_any("groups"), "groups", found,
                 [&](const fields& at, std::size_t) { read_group(at, p, found); });
}

inline std::optional<overlap> read_overlap(const fields& at, std::size_t stages, violation_list& found) {
    at.refuse_unknown({"forward", "backward", "kind", "duration", "memory"});
    const auto part = [&](const char* name) {
        const auto* value = at.required(name);
        return value ? read_stage_index(*value, at.place(name), stages, found) : std::nullopt;
    };
    const auto forward = part("forward");
    const auto backward = part("backward");
    overlap each;
    each.kind = at.choice<overlap_kind>("kind", {{{"B", overlap_kind::backward}, {"I", overlap_kind::backward_input}}});
    each.duration = duration{at.number("duration", 1.0)};
    each.memory = memory_size{at.number_or("memory", 0.0)};
    if (!forward || !backward) return std::nullopt;
    each.forward = *forward;
    each.backward = *backward;
    return each;
}

/// Reads the pairs. If a pair is unreadable, all pairs are dropped.
inline void read_overlaps(const fields& top, problem& p, violation_list& found) {
    const auto* list = top.list_if_any("overlaps");
    overlap_list<false> all;
    if (list && list->size() > most_overlaps) {
        found.add("overlaps", "holds " + std::to_string(list->size()) + ", at most " + std::to_string(most_overlaps) +
                                  " are allowed");
        return;
    }
    read_objects(list, "overlaps", found, [&](const fields& at, std::size_t i) {
        const auto each = read_overlap(at, p.graph.stages(), found);
        if (!each) return;
        if (all.find(each->forward, each->backward, each->kind))
            found.add(element_of("overlaps", i), "is the second pair of these stages and kind");
        else
            all.add(*each);
    });
    if (list && all.size() == list->size()) p.overlaps = all;
}

/// A microbatch's factor: one number for all stages, or one per stage.
struct read_factor {
    std::vector<double> by_stage{};
    double all = 1.0;
    [[nodiscard]] double of(std::size_t s) const { return by_stage.empty() ? all : by_stage[s]; }
};

inline read_factor read_factor_of(const fields& at, const char* name, std::size_t stages, const read_factor& otherwise,
                                  violation_list& found) {
    const auto* value = at.find(name);
    if (!value || value->is_null()) return otherwise;
    read_factor given;
    if (!value->is_array()) {
        given.all = read_number(*value, at.place(name), found).value_or(1.0);
        return given;
    }
    if (value->size() != stages) {
        found.add(at.place(name),
                  "has " + std::to_string(value->size()) + " entries, there are " + std::to_string(stages) + " stages");
        return otherwise;
    }
    for (std::size_t s = 0; s < stages; ++s)
        given.by_stage.push_back(read_number((*value)[s], element_of(at.place(name), s), found).value_or(1.0));
    return given;
}

/// The factor `scale`, which is the default for the microbatch's factors. Reports invalid values of `scale`, because
/// `validate` would blame other fields.
inline read_factor read_scale(const fields& at, std::size_t stages, violation_list& found) {
    const auto scale = read_factor_of(at, "scale", stages, {}, found);
    for (std::size_t s = 0; s < std::max<std::size_t>(scale.by_stage.size(), 1); ++s) {
        if (scale.of(s) > 0.0) continue;
        const auto place = scale.by_stage.empty() ? at.place("scale") : element_of(at.place("scale"), s);
        found.add(place, "must be above 0, is " + format_number(scale.of(s)));
        return {};
    }
    return scale;
}

/// One microbatch's factors per stage, and whether they differ.
struct read_factors {
    std::vector<cost_factors> by_stage{};
    bool differ = false;
};

inline read_factors read_factors_of(const fields& at, std::size_t stages, violation_list& found) {
    const auto scale = read_scale(at, stages, found);
    const auto forward = read_factor_of(at, "forward", stages, scale, found);
    const auto input = read_factor_of(at, "backward_input", stages, scale, found);
    const auto weight = read_factor_of(at, "backward_weight", stages, scale, found);
    const auto memory = read_factor_of(at, "memory", stages, scale, found);
    const auto message = read_factor_of(at, "message", stages, scale, found);
    read_factors factors;
    for (std::size_t s = 0; s < stages; ++s)
        factors.by_stage.push_back({forward.of(s), input.of(s), weight.of(s), memory.of(s), message.of(s)});
    for (const auto& each : factors.by_stage)
        factors.differ = factors.differ || !(each == factors.by_stage.front());
    return factors;
}

/// For each microbatch, the first microbatch of its sequence. A microbatch without a sequence has its own index.
inline std::vector<std::uint32_t> read_sequences(const json& list, violation_list& found) {
    std::vector<std::uint32_t> numbers;
    std::set<std::int64_t> seen;
    std::optional<std::int64_t> last;
    for (std::size_t m = 0; m < list.size(); ++m) {
        std::optional<std::int64_t> given;
        const auto place = element_of("microbatches", m) + ".sequence";
        if (list[m].is_object())
            if (const auto value = list[m].find("sequence"); value != list[m].end() && !value->is_null()) {
                if (value->is_number_integer())
                    given = value->get<std::int64_t>();
                else
                    refuse_type(found, place, "a whole number", *value);
            }
        const bool continues = given && last && *given == *last;
        if (given && !continues && !seen.insert(*given).second)
            found.add(place, "the slices of sequence " + std::to_string(*given) + " don't follow one another");
        numbers.push_back(continues ? numbers.back() : static_cast<std::uint32_t>(m));
        last = given;
    }
    return numbers;
}

/// Reads the list `microbatches`. Contract: `list` has one entry per microbatch of the problem.
inline void read_microbatches(const json& list, problem& p, violation_list& found) {
    const auto stages = p.graph.stages();
    std::vector<read_factors> all;
    bool differ = false;
    for (std::size_t m = 0; m < list.size(); ++m) {
        const auto place = element_of("microbatches", m);
        if (!list[m].is_object()) {
            refuse_type(found, place, "an object", list[m]);
            return;
        }
        const fields at{list[m], place + ".", found};
        at.refuse_unknown({"forward", "backward_input", "backward_weight", "memory", "message", "scale", "sequence"});
        all.push_back(read_factors_of(at, stages, found));
        differ = differ || all.back().differ;
    }
    std::vector<cost_factors> factors;
    for (std::size_t s = 0; s < (differ ? stages : 1); ++s)
        for (const auto& each : all)
            factors.push_back(each.by_stage[s]);
    if (differ)
        p.microbatches.set_factors_by_stage(factors, list.size());
    else
        p.microbatches.set_factors(factors);
    p.microbatches.set_sequences(read_sequences(list, found));
}

} // namespace optpipe::detail
