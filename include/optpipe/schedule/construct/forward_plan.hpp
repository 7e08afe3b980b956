#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/forward_only.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/report.hpp"

namespace optpipe {

/// The best list schedule of forwards alone, with its measures and `forward_bound`: where a rank has one stage the
/// optimum, proven by the bound; where it has several, as close as `report.gap()` says. Measured and drawn by
/// `forward_problem(p)`. Throws `input_error` for a problem that `validate` objects to, but for its backwards.
[[nodiscard]] schedule_report plan_forwards(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Every forward as late as those behind it on its rank, and the same microbatch's next one, allow; what each rank does
/// last stays where it is. No rank is engaged longer, and the last end is the same.
inline void postpone_forwards(const problem& p, schedule& s) {
    std::sort(s.operations.begin(), s.operations.end(), starts_before);
    per_rank<duration> until(p.graph.ranks(), duration::unlimited());
    per_stage<std::vector<duration>> starts(p.graph.stages(), std::vector<duration>(p.graph.microbatches()));
    for (auto at = s.operations.rbegin(); at != s.operations.rend(); ++at) {
        const auto& [op, start, end] = *at;
        auto& latest = until[p.rank_of(op.stage)];
        auto moved = latest.is_unlimited() ? end : latest;
        if (!p.is_last(op.stage))
            moved =
                std::min(moved, starts[op.stage.next()][op.microbatch.position()] - p.hop(op.stage, op.stage.next()));
        const auto by = std::max(moved - end, duration{});
        at->start = start + by;
        at->end = end + by;
        latest = starts[op.stage][op.microbatch.position()] = at->start;
    }
}

} // namespace detail

OPTPIPE_INLINE schedule_report plan_forwards(const problem& p) {
    const auto alone = forward_problem(p);
    auto checked = alone;
    for (auto& each : checked.costs)
        each.backward_input = each.backward_weight = each.forward;
    if (auto found = validate(checked); !found.empty()) throw input_error{"plan_forwards", std::move(found)};
    const auto objective = [&](const schedule& s) { return objective_of(alone, s); };
    auto best = forward_schedule(p, forward_priority::latest_stage);
    if (auto other = forward_schedule(p, forward_priority::earliest_stage); objective(other) < objective(best))
        best = std::move(other);
    if (p.objective == objective_kind::span) detail::postpone_forwards(p, best);
    auto report = make_report(alone, "forward-only", std::move(best), forward_bound(p));
    report.forward_only = true;
    return report;
}

} // namespace optpipe
#endif
