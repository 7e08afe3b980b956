#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/forward_only.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/report.hpp"

namespace optpipe {

/// The best list schedule of forwards alone, with its measures and `forward_bound`. It is optimal, proven by the bound,
/// if each rank has one stage; otherwise `report.gap()` tells its distance from the bound. Measure and draw it with
/// `forward_problem(p)`. Throws `input_error` for a problem with violations by `validate`, except in its backwards.
[[nodiscard]] schedule_report plan_forwards(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <utility>

namespace optpipe {
OPTPIPE_INLINE schedule_report plan_forwards(const problem& p) {
    require_plain(p, "forwards alone are planned");
    const auto alone = forward_problem(p);
    auto checked = alone;
    for (auto& each : checked.costs)
        each.backward_input = each.backward_weight = each.forward;
    if (auto found = validate(checked); !found.empty()) throw input_error{"plan_forwards", std::move(found)};
    const auto objective = [&](const schedule& s) { return objective_of(alone, s); };
    auto best = forward_schedule(p, forward_priority::latest_stage);
    if (auto other = forward_schedule(p, forward_priority::earliest_stage); objective(other) < objective(best))
        best = std::move(other);
    if (p.objective == objective_kind::span) postpone_warm_up(alone, best);
    auto report = make_report(alone, "forward-only", std::move(best), forward_bound(p));
    report.forward_only = true;
    return report;
}

} // namespace optpipe
#endif
