#include "replan.hpp"

#include <algorithm>
#include <cstddef>
#if defined(OPTPIPE_HAS_MILP)
#include "search.hpp"
#include <optpipe/planner/plan.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <utility>
#endif

namespace program {

#if defined(OPTPIPE_HAS_MILP)

replan_result plan_again(const std::vector<variant>& variants, const optpipe::schedule& start,
                         const replan_options& options) {
    replan_result result;
    search_options limits;
    limits.time_limit = options.time_limit;
    limits.threads = options.threads;
    for (const auto& [what, changed] : variants) {
        auto how = options_from(limits);
        if (auto timed = optpipe::retime(changed, start)) how.start = *std::move(timed);
        const auto planned = watched(how, limits, unit_of(changed), options.quiet,
                                     [&](const optpipe::plan_options& by) { return optpipe::plan(changed, by); });
        if (!planned) continue;
        result.plans.push_back({what, planned->objective, planned->bound});
        result.is_stopped = planned->why == optpipe::plan_end::stop_request;
        if (result.is_stopped) break;
    }
    return result;
}

#else

replan_result plan_again(const std::vector<variant>&, const optpipe::schedule&, const replan_options&) {
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
