#pragma once

#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/milp_strategy.hpp"

namespace optpipe {

/// `milp_strategy` as a strategy whose effort is measured as time.
struct timed_milp_strategy : milp_strategy {
    /// The share is small, because the strategy mainly contributes proofs, and other strategies find schedules. Not
    /// tuned.
    static constexpr double share = 0.5;

    [[nodiscard]] strategy_traits traits(const problem& p) const {
        auto known = milp_strategy::traits(p);
        known.timed = true;
        known.share = share;
        return known;
    }
};
static_assert(check_search_strategy<timed_milp_strategy>() && has_traits<timed_milp_strategy>);

} // namespace optpipe
