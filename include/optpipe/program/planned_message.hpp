#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <optional>

namespace optpipe {

/// The edge along which a message goes. Empty for partial results, which have no edge.
[[nodiscard]] inline std::optional<edge> edge_of(const problem& p, const task_label& message) {
    if (message.value != value_kind::boundary) return std::nullopt;
    const stage s = message.op.stage;
    const bool is_forward = direction_of(message.op) == message_direction::forward;
    const stage adjacent = is_forward ? s.next() : s.previous();
    const stage other = message.consumer != adjacent_stage ? message.consumer : adjacent;
    std::optional<edge> found;
    p.graph.for_each_edge_out_of(std::min(s, other), [&](const edge& e) {
        if (e.to == std::max(s, other)) found = e;
    });
    return found;
}

/// A message's planned duration: its edge's time, or its group's delay.
[[nodiscard]] inline duration planned_message_time(const problem& p, const task_label& message) {
    const auto m = message.op.microbatch;
    if (const auto e = edge_of(p, message))
        return direction_of(message.op) == message_direction::forward ? p.message_time(*e, m)
                                                                      : p.gradient_message_time(*e, m);
    duration of_group{};
    p.groups.for_each_member(message.op.stage, [&](stage, duration delay) { of_group = delay; });
    return of_group;
}

} // namespace optpipe
