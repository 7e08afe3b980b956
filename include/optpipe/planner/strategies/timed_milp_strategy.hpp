#pragma once

#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/milp_strategy.hpp"

namespace optpipe {

/// `milp_strategy`, whose effort is time.
struct timed_milp_strategy : milp_strategy {
    static constexpr bool timed = true;
    static constexpr double share = 0.5;
};
static_assert(check_search_strategy<timed_milp_strategy>() && has_timed<timed_milp_strategy>);

} // namespace optpipe
