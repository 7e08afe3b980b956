#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"

#include <string>
#include <string_view>

namespace optpipe {

/// The profile in the format `optpipe.profile/1`, with samples and estimates. `parse_profile` reads the same profile
/// back.
[[nodiscard]] std::string profile_to_json(const problem& p, const cost_profile& profile);

/// Reads a profile in the format `optpipe.profile/1`, with all steps. Throws `input_error` with all violations of the
/// format. `profile_violations` checks whether the profile belongs to a problem.
[[nodiscard]] cost_profile parse_profile(std::string_view text, const std::string& source_name);

/// Reads a file with `parse_profile`. Throws `file_error` if the file can't be read or is larger than 256 MiB.
[[nodiscard]] cost_profile read_profile(const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

inline constexpr std::size_t most_profile_bytes = std::size_t{1} << 28U;

/// One key's samples: step index and duration.
struct profile_series {
    std::vector<std::string> steps{};
    std::vector<std::string> durations{};
};

inline std::string json_name(const cost_key& key) {
    return "\"stage\": " + std::to_string(key.stage.value()) + ", \"kind\": " + json_quoted(spelling(key.kind)) +
           (key.storage ? ", \"storage\": " + std::to_string(unsigned{*key.storage}) : "") +
           (key.shared ? ", \"shared\": true" : "") +
           (key.forward ? ", \"forward\": " + std::to_string(key.forward->value()) : "");
}
inline std::string json_name(const rank_pair& pair) {
    return "\"from\": " + std::to_string(pair.from.value()) + ", \"to\": " + std::to_string(pair.to.value());
}

/// Writes all samples of each key, with the key's estimate. `estimates` are computed from the steps after the warm-up.
/// A key without an estimate gets null.
template <class Key>
std::string json_series(const cost_profile& profile, std::vector<cost_sample<Key>> measured_costs::*which,
                        const std::vector<cost_estimate<Key>>& estimates) {
    std::map<Key, profile_series> series;
    for (const auto& [step, piece] : profile.measured_steps())
        for (const auto& sample : piece.*which) {
            series[sample.of].steps.push_back(std::to_string(step));
            series[sample.of].durations.push_back(json_number(sample.took.value()));
        }
    std::map<Key, estimate> estimate_for;
    for (const auto& [key, e] : estimates)
        estimate_for[key] = e;
    std::vector<std::string> lines;
    for (const auto& [key, samples] : series) {
        std::string derived = "null";
        if (const auto at = estimate_for.find(key); at != estimate_for.end()) {
            const auto& e = at->second;
            derived = "{ \"median\": " + json_number(e.median.value()) + ", \"low\": " + json_number(e.low.value()) +
                      ", \"high\": " + json_number(e.high.value()) + ", \"confidence\": " + json_number(e.confidence) +
                      ", \"spread\": " + json_number(e.spread.value()) + ", \"count\": " + std::to_string(e.count) +
                      ", \"outliers\": " + std::to_string(e.outliers) + " }";
        }
        lines.push_back("{ " + json_name(key) + ", \"estimate\": " + derived + ",\n      \"step\": [" +
                        joined(samples.steps, ", ") + "],\n      \"took\": [" + joined(samples.durations, ", ") +
                        "] }");
    }
    return lines.empty() ? "[]" : "[\n    " + joined(lines, ",\n    ") + " ]";
}

inline constexpr std::size_t most_profile_index = std::size_t{1} << 12U; // upper limit of stage and rank indices

inline std::optional<cost_key> read_name(const fields& at, violation_list& found, const cost_key*) {
    const auto s = at.count("stage", most_profile_index);
    const auto letters = at.string_or("kind", "");
    const auto kind = std::find_if(all_operation_kinds.begin(), all_operation_kinds.end(),
                                   [&](operation_kind k) { return letters == spelling(k); });
    if (kind == all_operation_kinds.end())
        found.add(at.place("kind"), at.find("kind") ? "is no kind of operation, as \"F\" is" : "is missing");
    std::optional<storage_index> storage;
    if (at.find("storage"))
        if (const auto option = at.count("storage", most_storage_options - 1))
            storage = static_cast<storage_index>(*option);
    if (!s || kind == all_operation_kinds.end()) return std::nullopt;
    cost_key key{stage{*s}, *kind, storage, at.bool_or("shared", false)};
    if (at.find("forward"))
        if (const auto f = at.count("forward", most_profile_index)) key.forward = stage{*f};
    return key;
}
inline std::optional<rank_pair> read_name(const fields& at, violation_list&, const rank_pair*) {
    const auto from = at.count("from", most_profile_index);
    const auto to = at.count("to", most_profile_index);
    if (!from || !to) return std::nullopt;
    return rank_pair{rank{*from}, rank{*to}};
}

inline void refuse_unknown_names(const fields& at, const cost_key*) {
    at.refuse_unknown({"stage", "kind", "storage", "shared", "forward", "estimate", "step", "took"});
}
inline void refuse_unknown_names(const fields& at, const rank_pair*) {
    at.refuse_unknown({"from", "to", "estimate", "step", "took"});
}

template <class Key>
void read_series(const fields& top, const char* list, std::vector<cost_sample<Key>> measured_costs::*which,
                 cost_profile& profile, violation_list& found) {
    read_objects(top.list(list), list, found, [&](const fields& at, std::size_t) {
        constexpr const Key* kind_of_series = nullptr;
        refuse_unknown_names(at, kind_of_series);
        const auto key = read_name(at, found, kind_of_series);
        const auto* steps = at.list("step");
        const auto* durations = at.list("took");
        if (!key || !steps || !durations) return;
        if (steps->size() != durations->size()) {
            found.add(at.place("took"), "has " + std::to_string(durations->size()) + " entries, step has " +
                                            std::to_string(steps->size()));
            return;
        }
        for (std::size_t k = 0; k < steps->size(); ++k) {
            constexpr auto most_step = std::size_t{1} << 53U; // JSON numbers up to this limit are exact
            const auto step = read_count((*steps)[k], element_of(at.place("step"), k), most_step, found);
            const auto took_place = element_of(at.place("took"), k);
            const auto took = read_number((*durations)[k], took_place, found);
            if (took && !(*took >= 0.0)) found.add(took_place, "must not be negative, is " + shown((*durations)[k]));
            if (!step || !took) continue;
            measured_costs piece;
            (piece.*which).push_back({*key, duration{*took}});
            profile.add(*step, piece);
        }
    });
}

inline void read_peaks_of_profile(const fields& top, cost_profile& profile, violation_list& found) {
    read_objects(top.list("memory"), "memory", found, [&](const fields& at, std::size_t) {
        at.refuse_unknown({"rank", "device", "host"});
        const memory_peaks peaks{memory_size{at.number("device", 0.0)}, memory_size{at.number("host", 0.0)}};
        for (const auto& [name, size] : {std::pair{"device", peaks.device}, std::pair{"host", peaks.host}})
            if (!(size >= memory_size{})) found.add(at.place(name), "must not be negative");
        if (const auto r = at.count("rank", most_profile_index)) profile.add_peaks(rank{*r}, peaks);
    });
}

} // namespace detail

OPTPIPE_INLINE std::string profile_to_json(const problem& p, const cost_profile& profile) {
    std::vector<std::string> peaks;
    for (const auto& [r, most] : profile.peaks())
        peaks.push_back("{ \"rank\": " + std::to_string(r.value()) +
                        ", \"device\": " + detail::json_number(most.device.value()) +
                        ", \"host\": " + detail::json_number(most.host.value()) + " }");
    const auto given = profile.given_warm_up();
    return detail::json_object(
        {{"format", "\"optpipe.profile/1\""},
         {"problem", json_quoted(p.name)},
         {"time_unit", json_quoted(p.time_unit)},
         {"memory_unit", json_quoted(p.memory_unit)},
         {"warm_up", given ? std::to_string(*given) : "null"},
         {"operations", detail::json_series(profile, &measured_costs::operations, profile.operations())},
         {"messages", detail::json_series(profile, &measured_costs::messages, profile.messages())},
         {"memory", "[" + detail::joined(peaks, ", ") + "]"}});
}

OPTPIPE_INLINE cost_profile parse_profile(std::string_view text, const std::string& source_name) {
    const auto root = detail::parse_json(text, source_name);
    detail::violation_list found;
    cost_profile profile{std::numeric_limits<std::size_t>::max()};
    if (!root.is_object()) {
        detail::refuse_type(found, "", "an object", root);
    } else if (const detail::fields top{root, "", found};
               detail::format_version(top, "optpipe.profile/", 1, found) != 0) {
        top.refuse_unknown(
            {"format", "problem", "time_unit", "memory_unit", "warm_up", "operations", "messages", "memory"});
        if (const auto* warm_up = top.find("warm_up"); warm_up && !warm_up->is_null())
            profile.set_warm_up(detail::read_count(*warm_up, "warm_up", std::size_t{1} << 32U, found));
        detail::read_series(top, "operations", &measured_costs::operations, profile, found);
        detail::read_series(top, "messages", &measured_costs::messages, profile, found);
        detail::read_peaks_of_profile(top, profile, found);
    }
    if (!found.empty()) throw input_error{source_name, found.found()};
    return profile;
}

OPTPIPE_INLINE cost_profile read_profile(const std::string& path) {
    return parse_profile(read_file(path, detail::most_profile_bytes), printable(path, 400));
}

} // namespace optpipe
#endif
