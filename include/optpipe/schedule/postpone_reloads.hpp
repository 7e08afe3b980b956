#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// Starts every reload as late as its gradient, its engine and its link allow, and leaves all else: a stash that comes
/// back later takes device memory for a shorter time. It is on the host for longer, so that reloads of ranks with a
/// limit there stay. O(n log n).
template <pipeline_graph Graph>
constexpr void postpone_reloads(const basic_problem<Graph>& p, basic_schedule<Graph>& s) {
    std::vector<duration> due(p.graph.stages() * p.graph.microbatches());
    const auto cell = [&](const operation& op) {
        return op.stage.position() * p.graph.microbatches() + op.microbatch.position();
    };
    for (const auto& timed : s.operations)
        if (is_gradient(timed.op.kind)) due[cell(timed.op)] = timed.start;

    // What comes next on each engine and link: out, in.
    std::vector<duration> engine(2 * p.graph.ranks(), duration::unlimited());
    auto link = engine;
    std::sort(s.operations.begin(), s.operations.end(), starts_before);
    for (std::size_t i = s.operations.size(); i-- > 0;) {
        auto& timed = s.operations[i];
        if (!is_transfer(timed.op.kind)) continue;
        const rank r = p.rank_of(timed.op.stage);
        const bool inward = timed.op.kind == operation_kind::reload;
        auto& next_on_engine = engine[2 * r.position() + (p.transfer.engines == 2 && inward ? 1 : 0)];
        auto& next_on_link = link[2 * p.transfer.link[r] + (p.transfer.duplex == duplex_kind::full && inward ? 1 : 0)];
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
