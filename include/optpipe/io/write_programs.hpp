#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/program/ir.hpp"

#include <string>
#include <string_view>

namespace optpipe {

/// Writes all ranks' programs in the format `optpipe.programs/1` (io/README.md). A marker is written as the position of
/// its recording instruction. `bytes_per_unit` must be the value with which the programs were lowered. Contract: at
/// least one program.
[[nodiscard]] std::string programs_to_json(std::string_view problem_name, const per_rank<rank_program>& programs,
                                           double bytes_per_unit);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/contract.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/program/step_shape.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe {
namespace detail {

[[nodiscard]] constexpr std::string_view spelling(instruction_kind kind) {
    switch (kind) {
    case instruction_kind::compute: return "compute";
    case instruction_kind::copy: return "copy";
    case instruction_kind::exchange: return "exchange";
    case instruction_kind::update: return "update";
    case instruction_kind::reduce: return "reduce";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view spelling(memory_arena arena) {
    switch (arena) {
    case memory_arena::device: return "device";
    case memory_arena::host: return "host";
    case memory_arena::message: return "message";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view spelling(buffer_role role) {
    switch (role) {
    case buffer_role::kept: return "kept";
    case buffer_role::freed: return "freed";
    case buffer_role::resident_kept: return "resident_kept";
    case buffer_role::resident_freed: return "resident_freed";
    case buffer_role::restored_kept: return "restored_kept";
    case buffer_role::restored_freed: return "restored_freed";
    case buffer_role::added: return "added";
    case buffer_role::host: return "host";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view spelling(link_way way) {
    switch (way) {
    case link_way::input: return "input";
    case link_way::output: return "output";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view spelling(value_kind value) {
    switch (value) {
    case value_kind::boundary: return "boundary";
    case value_kind::partial: return "partial";
    case value_kind::keys_values: return "keys_values";
    case value_kind::keys_values_gradient: return "keys_values_gradient";
    }
    return "?";
}

inline std::string quoted_field(std::string_view name, std::string_view value) {
    return std::string{"\""}.append(name).append("\": \"").append(value).append("\"");
}
inline std::string number_field(std::string_view name, std::size_t value) {
    return std::string{"\""}.append(name).append("\": ").append(std::to_string(value));
}

/// A JSON list with one element per line.
inline std::string json_lines(const std::vector<std::string>& elements) {
    return elements.empty() ? "[]" : "[\n        " + joined(elements, ",\n        ") + " ]";
}

inline std::string json_message(const exchange_part& part) {
    const bool sends = part.side == exchange_part::side_kind::send;
    std::string text = "{ " + quoted_field("side", sends ? "send" : "receive");
    text += ", " + quoted_field("of", to_string(part.message)) + ", " + number_field("peer", part.peer.position());
    if (part.value != value_kind::boundary) text += ", " + quoted_field("value", spelling(part.value));
    if (part.consumer != adjacent_stage) text += ", " + number_field("for", part.consumer.position());
    if (part.buffer != no_buffer) text += ", " + number_field("buffer", part.buffer.position());
    return text + " }";
}

inline std::string json_messages(const rank_program& p, const instruction& i) {
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < i.parts; ++k)
        parts.push_back(json_message(p.parts[i.first_part + k]));
    return "\"messages\": [" + joined(parts, ", ") + "]";
}

inline std::string json_link(const buffer_link& link) {
    const bool is_of_slice = link.value == value_kind::keys_values || link.value == value_kind::keys_values_gradient;
    return "{ " + quoted_field("way", spelling(link.way)) + ", " + quoted_field("value", spelling(link.value)) + ", " +
           (is_of_slice ? number_field("slice", link.slice.position()) : number_field("stage", link.other.position())) +
           ", " + number_field("buffer", link.buffer.position()) + " }";
}

/// The buffers by purpose, with the stage's first input and output. If the stages don't form a plain chain, all links
/// between buffers are listed, too.
inline std::string json_buffers_of(const rank_program& p, const operation_buffers& i) {
    std::vector<std::string> fields;
    const auto links = std::span{p.links}.subspan(i.first_link, i.links);
    for (const auto way : {link_way::input, link_way::output}) {
        const auto first = std::find_if(links.begin(), links.end(), [&](const buffer_link& link) {
            return link.way == way && link.value == value_kind::boundary;
        });
        if (first != links.end()) fields.push_back(number_field(spelling(way), first->buffer.position()));
    }
    for (std::size_t role = 0; role < buffer_roles; ++role)
        if (i.buffers[role] != no_buffer)
            fields.push_back(number_field(spelling(static_cast<buffer_role>(role)), i.buffers[role].position()));
    auto text = fields.empty() ? std::string{} : ", \"buffers\": { " + joined(fields, ", ") + " }";
    if (links.empty() || p.shape == step_shape{}) return text;
    std::vector<std::string> all;
    for (const auto& link : links)
        all.push_back(json_link(link));
    return text + ", \"links\": [" + joined(all, ", ") + "]";
}

inline std::string json_operation(const rank_program& p, const operation_buffers& each) {
    return quoted_field("op", to_string(each.op)) + json_buffers_of(p, each);
}
/// A pair's forward and backward, and the buffer of its working memory.
inline std::string json_pair(const rank_program& p, const instruction& i) {
    auto text = quoted_field("op", to_string(label_of(p, i)));
    std::string_view name = "forward";
    for_each_operation_of(p, i, [&](const operation_buffers& each) {
        text.append(", \"").append(name).append("\": { ").append(json_operation(p, each)).append(" }");
        name = "backward";
    });
    const auto memory = p.pairs[i.pair].memory;
    return text + (memory != no_buffer ? ", " + number_field("memory", memory.position()) : "");
}

/// The action of an instruction, without its lane and waits.
inline std::string json_action(const rank_program& p, const instruction& i) {
    if (i.is_pair()) return json_pair(p, i);
    switch (i.kind) {
    case instruction_kind::compute:
    case instruction_kind::copy: return json_operation(p, {i.op, i.buffers, i.first_link, i.links});
    case instruction_kind::exchange: return json_messages(p, i);
    case instruction_kind::update:
    case instruction_kind::reduce: return number_field("stage", i.op.stage.position());
    }
    return "";
}

inline std::string json_instructions(const rank_program& p) {
    std::vector<std::size_t> recorded_by(p.markers);
    std::vector<std::string> lines;
    for (const auto& i : p.instructions) {
        if (i.records != no_marker) recorded_by[i.records.position()] = lines.size();
        std::vector<std::string> after;
        for (std::size_t w = 0; w < i.waits; ++w)
            after.push_back(std::to_string(recorded_by[p.waits[i.first_wait + w].position()]));
        lines.push_back("{ " + quoted_field("kind", spelling(i.kind)) + ", " +
                        quoted_field("lane", spelling(p.lanes[i.lane])) + ", \"after\": [" + joined(after, ", ") +
                        "], " + json_action(p, i) + " }");
    }
    return json_lines(lines);
}

inline std::string json_buffers(const rank_program& p) {
    std::vector<std::string> lines;
    for (const auto& b : p.buffers) {
        std::vector<std::string> segments;
        for (std::size_t s = 0; s < b.segments; ++s) {
            const auto& segment = p.segments[b.first_segment + s];
            segments.push_back("[" + std::to_string(segment.offset) + ", " + std::to_string(segment.bytes) + "]");
        }
        lines.push_back("{ " + quoted_field("arena", spelling(b.arena)) + ", " + number_field("bytes", b.bytes) +
                        ", \"segments\": [" + joined(segments, ", ") + "], " + number_field("first_use", b.first_use) +
                        ", " + number_field("last_use", b.last_use) + " }");
    }
    return json_lines(lines);
}

inline std::string json_program(const rank_program& p) {
    std::vector<std::string> lanes;
    for (const auto lane : p.lanes)
        lanes.push_back(json_quoted(spelling(lane)));
    const std::vector<std::string> fields{
        number_field("rank", p.self.position()),    number_field("device_bytes", p.device_bytes),
        number_field("host_bytes", p.host_bytes),   number_field("message_bytes", p.message_bytes),
        "\"lanes\": [" + joined(lanes, ", ") + "]", "\"instructions\": " + json_instructions(p),
        "\"buffers\": " + json_buffers(p)};
    return "{ " + joined(fields, ",\n      ") + " }";
}

} // namespace detail

OPTPIPE_INLINE std::string programs_to_json(std::string_view problem_name, const per_rank<rank_program>& programs,
                                            double bytes_per_unit) {
    OPTPIPE_EXPECT(programs.size() > 0, "programs_to_json: a program at least");
    std::vector<std::string> texts;
    for (const auto& each : programs)
        texts.push_back(detail::json_program(each));
    const auto& first = *programs.begin();
    detail::json_fields fields{{"format", "\"optpipe.programs/1\""},
                               {"problem", json_quoted(problem_name)},
                               {"stages", std::to_string(first.stages)},
                               {"microbatches", std::to_string(first.microbatches)},
                               {"bytes_per_unit", detail::json_number(bytes_per_unit)},
                               {"alignment", std::to_string(first.alignment)}};
    if (first.forward_only) fields.emplace_back("forward_only", "true");
    fields.emplace_back("programs", "[\n    " + detail::joined(texts, ",\n    ") + " ]");
    return detail::json_object(fields);
}

} // namespace optpipe
#endif
