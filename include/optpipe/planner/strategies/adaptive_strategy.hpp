#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/construct/merge_pairs.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// The adaptive builder as a strategy. Every call starts anew, with at most the builder's default effort. With the
/// default effort and the builder's seed, a call finds the builder's schedule.
struct adaptive_strategy {
    static constexpr std::string_view name = adaptive_builder<>::name;
    /// Time to time and validate the last order, in passes through the problem. The search ends by this amount before
    /// the deadline.
    static constexpr double last_passes = 2.0;
    static constexpr std::size_t most_effort = adaptive_builder<>{}.effort;
    /// A quarter of the builder's effort, so the second batch has the full effort. Not tuned.
    static constexpr std::size_t first_effort = most_effort / 4;
    /// Every call starts anew: later calls seldom find more than the first call. Not tuned.
    static constexpr double share = 0.25;
    /// See `strategy_traits::least_passes`. Measured for a single run of the dispatcher, with 256 ranks and 4096
    /// microbatches.
    static constexpr double least_passes = 5.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.knows_graphs = true,
                .knows_pairs = true,
                .knows_storage_options = !is_plain(p), // plain problems get the builder with each storage option
                .first_effort = first_effort,
                .share = share,
                .least_passes = least_passes};
    }

    void operator()(search_state& state, const strategy_options& options) const {
        adaptive_builder<> build;
        build.effort = std::min(options.effort, most_effort);
        build.seed = options.seed;
        build.bound = state.bound();
        const stop_when stop{[&] { return state.done() || !state.has_time_for(last_passes); }};
        const auto& p = state.problem();
        const auto built = build(p, stop);
        if (!built) return;
        const auto timed = p.overlaps.empty() ? outcome<schedule>{refusal{}} : time_order(p, *built);
        if (timed)
            state.offer(merge_pairs(p, *timed, stop), name);
        else
            state.offer(*built, name);
    }
};
static_assert(check_search_strategy<adaptive_strategy>());

} // namespace optpipe
