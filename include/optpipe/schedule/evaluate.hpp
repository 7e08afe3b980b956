#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builder.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/postpone_reloads.hpp"
#include "optpipe/schedule/report.hpp"
#include "optpipe/schedule/simulate.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace optpipe {

/// The times that an order gets in the end: its earliest ones; but for `span` a warm-up that is put off, and where
/// stashes travel both that and reloads that are, so that nothing is held for longer than it has to be.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>> time_order(const basic_problem<Graph>& p,
                                                                  const basic_order<Graph>& given) {
    auto timed = simulate(p, given);
    const bool travels = std::any_of(given.operations.begin(), given.operations.end(),
                                     [](const operation& op) { return is_transfer(op.kind); });
    if (!timed || (p.objective == objective_kind::makespan && !travels)) return timed;
    auto result = *std::move(timed);
    postpone_warm_up(p, result);
    if (travels) postpone_reloads(p, result);
    return result;
}

/// The schedule that a builder gets within the memory of the problem, or why there is none.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>> build_schedule(const basic_problem<Graph>& p,
                                                                      const Builder& build) {
    static_assert(check_schedule_builder<Builder, Graph>());
    const auto built = build(p);
    if (!built) return built.why();
    return time_order(p, *built);
}

/// A schedule with its measures. `bound`: for the problem, 0 where nothing is known; what rounding puts above the
/// objective counts as equal to it. Contract: nothing else does.
[[nodiscard]] inline schedule_report make_report(const problem& p, std::string method, schedule timed,
                                                 duration bound = {}) {
    schedule_report report{std::move(method), std::move(timed), {}, {}};
    report.measures = measure(p, report.schedule);
    if (bound <= duration{}) return report;
    const auto objective = report.measures.objective;
    const bool holds = bound <= objective + time_slack(p, report.schedule);
    OPTPIPE_EXPECT(holds, "make_report: the bound is above the objective");
    report.bound = std::min(bound, objective);
    return report;
}

} // namespace optpipe
