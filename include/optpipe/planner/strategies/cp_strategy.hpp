#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// `cp_search` as a strategy. The effort counts propagation steps.
struct cp_strategy {
    static constexpr std::string_view name = "cp";
    /// Steps of the first call, which take some tens of milliseconds. A million steps take one to two seconds, on
    /// problems with 60 to 400 cells.
    static constexpr std::size_t first_steps = 50'000;
    /// The time share is large: only this strategy closes the gap from both sides. The share was compared with a thread
    /// reserved for the strategy, on problems of up to 130 cells. On 187 random problems (3 s, two threads), the share
    /// led to 16 better plans, 6 worse plans, and three fewer proofs.
    static constexpr double share = 4.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.applicable = !cp::detail::is_too_large(p, {}),
                .knows_graphs = true,
                .knows_storage_options = true,
                .cooperative = true,
                .resumes = true,
                .first_effort = first_steps,
                .share = share};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        cp_search(state, {.seed = options.seed, .steps = options.effort});
    }
};
static_assert(check_search_strategy<cp_strategy>());

} // namespace optpipe
