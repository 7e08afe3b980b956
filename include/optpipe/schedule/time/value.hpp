#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

namespace optpipe {

/// The value of a schedule, by which schedules are compared. A lower objective is better. Between equal objectives, the
/// time that the schedule spends on transfers and recomputation decides. Of two steps with equal planned length, the
/// one with more transfers and recomputation takes longer in practice.
struct schedule_value {
    duration objective = duration::unlimited();
    duration storage = duration::unlimited();
};

/// The time of all transfers and of all recomputation, both in RECOMPUTE and inside backwards. Operations that the
/// problem doesn't have count as 0.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration storage_time_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    duration all{};
    for (const auto& [op, start, end] : s.operations) {
        if (!is_possible(p, op)) continue;
        if (is_transfer(op.kind) || op.kind == operation_kind::recompute) all += duration_of(p, op);
        if (is_gradient(op.kind))
            all += p.microbatches.factors(op.stage, op.microbatch).forward * storage_of(p, op).backward_extra;
    }
    return all;
}
template <pipeline_graph Graph>
[[nodiscard]] constexpr schedule_value value_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    return {objective_of(p, s), storage_time_of(p, s)};
}

/// Whether two sums of durations are equal except for rounding. Contract: the sums aren't negative.
[[nodiscard]] constexpr bool is_same_sum(duration a, duration b) {
    constexpr double nearly_one = 1.0 - 1e-9; // larger than the rounding error of a sum of a million terms
    return a >= nearly_one * b && b >= nearly_one * a;
}
[[nodiscard]] constexpr bool is_better(const schedule_value& a, const schedule_value& b) {
    if (is_same_sum(a.objective, b.objective) && !is_same_sum(a.storage, b.storage)) return a.storage < b.storage;
    return a.objective < b.objective;
}

} // namespace optpipe
