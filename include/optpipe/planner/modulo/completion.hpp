#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/pattern.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// How a repeated pattern is completed with a prologue and an epilogue.
struct completion_options {
    /// A forward with n later stages may move earlier by n times this share of a period. Forwards move only by whole
    /// periods, as far as memory allows.
    double ahead = 0.0;
    /// Whether weight gradients may leave their pattern slots. Weight gradients outside their slots run in idle time,
    /// or where memory must be released.
    bool refill = false;
    friend constexpr bool operator==(const completion_options&, const completion_options&) = default;
};

/// Moves the forwards of every stage some periods earlier. There are no collisions: each forward takes the slot of an
/// earlier microbatch's forward.
[[nodiscard]] inline periodic_pattern with_forwards_ahead(const problem& p, periodic_pattern pattern, double share) {
    const auto peaks = memory_of_repetition(p, pattern);
    per_rank<double> spare(p.graph.ranks());
    per_rank<double> stashes(p.graph.ranks());
    for (const rank r : p.graph.all_ranks())
        spare[r] = (p.memory_limit[r] + tolerance{}.at(p.memory_scale()) - peaks[r]).value();
    for (const stage s : p.graph.all_stages())
        for (const auto& at : pattern.stages[s])
            stashes[p.rank_of(s)] += p.storage_of(s, at.storage).held.value();
    auto least = static_cast<double>(p.graph.microbatches());
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        const auto after = static_cast<double>(p.graph.stages() - 1 - s.position());
        const auto room = stashes[r] > 0.0 ? std::max(0.0, spare[r] / stashes[r]) : least;
        const auto wanted = share * after / static_cast<double>(pattern.periodicity);
        // Forwards move no further than the forwards of the preceding stage.
        least = std::min({least, std::floor(room), std::floor(wanted)});
        for (auto& at : pattern.stages[s])
            at.forward -= least * pattern.length();
    }
    return pattern;
}

/// The forwards and gradients of each rank, sorted by start. `fill_with_weights` adds the weight gradients.
[[nodiscard]] inline compute_lanes lanes_without_weights(const problem& p, const schedule& s) {
    compute_lanes lanes(p.graph.ranks());
    for (const auto& op : order_of(s).operations)
        if (op.kind != operation_kind::backward_weight) lanes[p.rank_of(op.stage)].push_back(op);
    return lanes;
}

/// The complete schedule of a step with this pattern, or the reason why there is none. `stop` is polled between passes.
[[nodiscard]] inline outcome<schedule> complete_pattern(const problem& p, const periodic_pattern& pattern,
                                                        const completion_options& how, stop_check stop = {}) {
    const auto repeated = repeat(p, how.ahead > 0.0 ? with_forwards_ahead(p, pattern, how.ahead) : pattern);
    if (stop()) return was_stopped();
    if (!how.refill) return time_order(p, order_of(repeated), stop);
    const auto refilled = fill_with_weights(p, lanes_without_weights(p, repeated), p.memory_limit);
    if (!refilled) return refilled.why();
    const auto filled = fill_gaps(p, *refilled, p.memory_limit, stop);
    if (stop()) return was_stopped();
    return time_order(p, filled, stop);
}

/// Whether weight gradients may be rescheduled. Rescheduling requires that nothing is offloaded, nothing is recomputed
/// before a backward, and every backward is split.
[[nodiscard]] inline bool can_refill(const problem& p, const periodic_pattern& pattern) {
    if (!p.split_backward) return false;
    for (const stage s : p.graph.all_stages())
        for (const auto& at : pattern.stages[s]) {
            const auto& stored = p.storage_of(s, at.storage);
            if (at.full || stored.offloads() || stored.recomputes()) return false;
        }
    return true;
}

} // namespace optpipe::detail
