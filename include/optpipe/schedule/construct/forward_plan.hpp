#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/forward_only.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/time/report.hpp"

namespace optpipe {

/// The best schedule found for forwards alone, with its measures and `forward_bound`. Tries list schedules. If the
/// problem isn't plain, also tries orders in which microbatches overtake (`order_dispatcher`), and the adaptive
/// builder, which respects memory limits. For a plain problem with one stage per rank, the schedule is optimal, and the
/// bound proves it. For any other problem, `report.gap()` is the distance of the schedule from the bound. Measure and
/// draw the schedule with `forward_problem(p)`. Refused if the memory of edges, attention keys and values exceeds the
/// memory limits. Throws `input_error` if `forward_problem(p)` isn't valid.
[[nodiscard]] outcome<schedule_report> plan_forwards(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/dispatch/order_dispatcher.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Calls `offer(schedule&&)` for schedules in which a waiting rank runs later forwards of `listed` first.
template <class Offer> void for_each_overtaking(const problem& alone, const schedule& listed, const Offer& offer) {
    const auto by_start = order_of(listed).operations;
    const std::vector<operation> given(by_start.begin(), by_start.end());
    for (const auto& options : order_dispatch_choices)
        if (auto timed = simulate(alone, {alone.graph, order_dispatcher<any_graph>{alone, given, options}.run()}))
            offer(*std::move(timed));
}

} // namespace detail

OPTPIPE_INLINE outcome<schedule_report> plan_forwards(const problem& p) {
    const auto alone = forward_problem(p);
    if (auto found = validate(alone); !found.empty()) throw input_error{"plan_forwards", std::move(found)};
    std::optional<schedule> best;
    const auto offer = [&](schedule&& s) {
        if (!best || objective_of(alone, s) < objective_of(alone, *best)) best = std::move(s);
    };
    const bool plain = is_plain(p);
    for (const auto preferred : {forward_preference::deepest_stage, forward_preference::shallowest_stage}) {
        auto listed = forward_schedule(p, preferred);
        if (!plain) detail::for_each_overtaking(alone, listed, offer);
        if (plain || is_valid(alone, listed)) offer(std::move(listed));
    }
    const auto bound = forward_bound(p);
    const bool is_proven = best && objective_of(alone, *best) <= bound;
    if (!plain && !is_proven) {
        auto built = build_schedule(alone, adaptive_builder<>{.bound = bound});
        if (!built && !best) return built.why();
        if (built) offer(*std::move(built));
    }
    if (p.objective == objective_kind::span) postpone_warm_up(alone, *best);
    auto report = make_report(alone, "forward-only", *std::move(best), bound);
    report.forward_only = true;
    return report;
}

} // namespace optpipe
#endif
