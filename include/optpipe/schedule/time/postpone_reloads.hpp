#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// Starts every reload as late as its engine, its link, and its recomputation or gradient allow. Nothing else changes.
/// A later reload takes device memory for a shorter time. Reloads of ranks with a host limit don't move, as a later
/// reload holds host memory for longer. O(n log n).
template <pipeline_graph Graph>
constexpr void postpone_reloads(const basic_problem<Graph>& p, basic_schedule<Graph>& s) {
    const cell_numbering cell{p.graph};
    std::vector<duration> due(cell.size(), duration::unlimited());
    for (const auto& timed : s.operations)
        if (is_gradient(timed.op.kind) || timed.op.kind == operation_kind::recompute)
            due[cell(timed.op)] = std::min(due[cell(timed.op)], timed.start);

    // The start of the next transfer on each engine and link, in each direction.
    std::vector<duration> engine(2 * p.graph.ranks(), duration::unlimited());
    auto link = engine;
    std::sort(s.operations.begin(), s.operations.end(), starts_before);
    for (std::size_t i = s.operations.size(); i-- > 0;) {
        auto& timed = s.operations[i];
        if (!is_transfer(timed.op.kind)) continue;
        const rank r = p.rank_of(timed.op.stage);
        const bool inward = is_inward(timed.op.kind);
        auto& next_on_engine = engine[copy_engine_of(p.transfer, r, inward)];
        auto& next_on_link = link[host_channel_of(p.transfer, r, inward)];
        if (inward && p.host_memory_limit[r].is_unlimited()) {
            const auto latest_end = std::min({due[cell(timed.op)], next_on_engine, next_on_link});
            const auto length = timed.end - timed.start;
            if (latest_end > timed.end) {
                timed.start = latest_end - length;
                timed.end = latest_end;
            }
        }
        next_on_engine = next_on_link = timed.start;
    }
}

} // namespace optpipe
