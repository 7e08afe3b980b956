#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/chain_problem.hpp"
#include "optpipe/schedule/construct/merge_pairs.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/postpone_reloads.hpp"
#include "optpipe/schedule/time/report.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace optpipe {

/// Gives an order its earliest times, with two exceptions. For `span`, the warm-up is postponed. With offloading,
/// warm-up and reloads are postponed, to hold memory for less time. `stop` is polled between passes.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>>
time_order(const basic_problem<Graph>& p, const basic_order<Graph>& given, stop_check stop = {}) {
    auto timed = simulate(p, given);
    const bool offloads = std::any_of(given.operations.begin(), given.operations.end(),
                                      [](const operation& op) { return is_transfer(op.kind); });
    if (!timed || (p.objective == objective_kind::makespan && !offloads)) return timed;
    if (stop()) return was_stopped();
    auto result = *std::move(timed);
    postpone_warm_up(p, result);
    if (stop()) return was_stopped();
    if (offloads) postpone_reloads(p, result);
    return result;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] outcome<schedule> time_order(const problem& p, const order& given, stop_check stop = {});
#endif

/// The objective of a schedule without transfers after `time_order`, given its earliest times.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration objective_with_late_warm_up(const basic_problem<Graph>& p,
                                                             const basic_schedule<Graph>& earliest) {
    if (p.objective == objective_kind::makespan) return objective_of(p, earliest);
    auto late = earliest;
    postpone_warm_up(p, late);
    return objective_of(p, late);
}

/// Computes new times for the schedule `s`, which was made for other costs. The order of `s` is timed with the costs of
/// this problem. If `s` is valid for `p`, it is returned unchanged. Refused if `simulate` refuses the order.
[[nodiscard]] outcome<schedule> retime(const problem& p, const schedule& s);

namespace detail {

template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr outcome<basic_order<Graph>> call_builder(const basic_problem<Graph>& p, const Builder& build,
                                                                 stop_check stop) {
    if constexpr (has_stoppable_build<Builder, Graph>)
        return build(p, stop);
    else
        return build(p);
}

/// Converts the order of a builder for the `chain_problem` of `p` to an order of `p`.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] outcome<basic_order<Graph>> build_by_chain(const basic_problem<Graph>& p, const Builder& build,
                                                         stop_check stop) {
    if constexpr (schedule_builder<Builder>) {
        const auto sequences = sequences_of(p);
        const auto built = call_builder(chain_problem(p, sequences.size()), build, stop);
        if (!built) return built.why();
        return order_of_slices(p, sequences, *built);
    } else {
        return does_not_apply("this schedule is for a chain of stages and equal microbatches");
    }
}

} // namespace detail

/// The builder's schedule if it fits in memory, or the reason why there is none. Builders poll `stop` if they may take
/// long. If `p` isn't plain, a builder for plain problems gets the `chain_problem` of `p`. The chain has one microbatch
/// for each sequence, and equal costs for all microbatches. The builder's order for the chain is converted to an order
/// for `p`. If the problem has pairs but the builder made none, neighbouring forwards and backwards are merged
/// (`merge_pairs`).
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>> build_schedule(const basic_problem<Graph>& p,
                                                                      const Builder& build, stop_check stop = {}) {
    static_assert(check_schedule_builder<Builder, Graph>());
    const auto built = [&] {
        if constexpr (!plans_any_graph<Builder>)
            if (!is_plain(p)) return detail::build_by_chain(p, build, stop);
        return detail::call_builder(p, build, stop);
    }();
    if (!built) return built.why();
    if (stop.is_requested()) return was_stopped();
    auto timed = time_order(p, *built);
    if constexpr (!Graph::is_static)
        if (timed && !p.overlaps.empty() && !has_pairs(timed->operations))
            return time_order(p, order_of(merge_pairs(p, *std::move(timed), stop)));
    return timed;
}

/// Makes a report of a schedule with its measures. `bound` is a lower bound on the problem's objective, or 0 if no
/// bound is known. A bound that exceeds the objective by rounding is lowered to the objective. Contract: `bound`
/// exceeds the objective by no more than rounding.
[[nodiscard]] schedule_report make_report(const problem& p, std::string method, schedule timed, duration bound = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/contract.hpp"

namespace optpipe {

OPTPIPE_INLINE outcome<schedule> retime(const problem& p, const schedule& s) {
    if (s.graph.ranks() == p.graph.ranks() && is_valid(p, s)) return s;
    return time_order(p, order{p.graph, order_of(s).operations});
}

OPTPIPE_INLINE schedule_report make_report(const problem& p, std::string method, schedule timed, duration bound) {
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
#endif
