#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/rescheduling/rescheduling_search.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// `rescheduling_search` as a strategy.
struct rescheduling_strategy {
    static constexpr std::string_view name = "rescheduling";
    /// The first call makes max(`first_cells` / cells, `least_trials`) schedules. A schedule takes a third of a
    /// microsecond per cell, and more if many transfers wait. Without a time limit, `plan` takes 1.7 s for a problem
    /// with 1024 cells and transfers (po-d8-v4-m32-k050-mem9). `plan` took 4.1 s with five times as many schedules, and
    /// 1.1 s without this strategy.
    static constexpr std::size_t first_cells = 20'000;
    static constexpr std::size_t least_trials = 8;
    /// Time share relative to other strategies. The strategy improved three of 18 problems by 0.1 to 1.1 %, all in v
    /// placement. With a share of 1, the plans of seven other problems were worse by up to 0.5 % (6 s each, one seed).
    static constexpr double share = 0.25;
    /// Time to read one schedule and make another, in passes through the problem.
    static constexpr double least_passes = 10.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.knows_storage_options = true,
                .randomized = true,
                .first_effort = std::max(least_trials, first_cells / p.graph.cells()),
                .share = share,
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        rescheduling_search(state, {.seed = options.seed, .trials = options.effort});
    }
};
static_assert(check_search_strategy<rescheduling_strategy>());

} // namespace optpipe
