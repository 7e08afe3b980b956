#include "replan.hpp"

#include <algorithm>
#include <cstddef>
#if defined(OPTPIPE_HAS_MILP)
#include "search.hpp"
#include <optpipe/planner/plan.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <optional>
#include <utility>
#include <vector>
#endif

namespace program {

#if defined(OPTPIPE_HAS_MILP)

namespace {

/// The best of the schedules with the times of this problem; empty if none is valid.
std::optional<optpipe::schedule> best_start(const optpipe::problem& p,
                                            const std::vector<optpipe::schedule>& schedules) {
    std::optional<optpipe::schedule> best;
    for (const auto& each : schedules)
        if (auto timed = optpipe::retime(p, each))
            if (!best || objective_of(p, *timed) < objective_of(p, *best)) best = *std::move(timed);
    return best;
}

} // namespace

std::vector<replanned> plan_again(const std::vector<variant>& variants, const optpipe::schedule& start,
                                  const replan_options& options, const interruption& interrupted) {
    std::vector<replanned> plans;
    std::vector starts{start};
    search_options limits;
    limits.time_limit = options.time_limit;
    limits.threads = options.threads;
    for (const auto& [what, changed] : variants) {
        if (interrupted.is_requested()) break;
        auto how = options_from(limits);
        how.start = best_start(changed, starts);
        const auto planned = watched(how, limits, unit_of(changed), options.quiet, interrupted,
                                     [&](const optpipe::plan_options& by) { return optpipe::plan(changed, by); });
        if (planned)
            plans.push_back({what, planned->objective, planned->bound});
        else
            plans.push_back({.what = what, .reason = optpipe::reason_text(changed, planned.why())});
        if (planned && plans.size() == 1) starts.push_back(planned->schedule);
    }
    return plans;
}

#else

std::vector<replanned> plan_again(const std::vector<variant>&, const optpipe::schedule&, const replan_options&,
                                  const interruption&) {
    return {};
}

#endif

bool has_transfers(const optpipe::problem& p) {
    for (const auto s : p.graph.all_stages())
        for (std::size_t i = 0; i < p.storage_options(s); ++i)
            if (p.storage_of(s, i).transfer) return true;
    return false;
}

bool has_hops(const optpipe::problem& p) {
    bool any = false;
    for (const auto s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(
            s, [&](const optpipe::edge& e) { any = any || e.size * p.hop(e.from, e.to) > optpipe::duration{}; });
    return any;
}

bool is_limited(const optpipe::per_rank<optpipe::memory_size>& limits) {
    return std::any_of(limits.begin(), limits.end(), [](auto limit) { return !limit.is_unlimited(); });
}

} // namespace program
