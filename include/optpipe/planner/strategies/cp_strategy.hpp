#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/cells_of.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// `cp_search` as a strategy. The effort counts propagation steps.
struct cp_strategy {
    static constexpr std::string_view name = "cp";
    /// Of the first call: some tens of milliseconds. A million steps take one to two seconds, of problems with 60 to
    /// 400 cells.
    static constexpr std::size_t first_steps = 50'000;
    /// It alone closes the gap from both sides. Chosen, not tuned.
    static constexpr double share = 2.0;

    /// Larger problems it seldom finishes. With a thread of two for all of them, 9 of 40 problems drawn at random were
    /// worse after 2 s, 2 better; one run each, of which some differ as much between seeds.
    static constexpr std::size_t most_cells_for_thread = 130;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        const bool may_finish = detail::cells_of(p) <= most_cells_for_thread;
        return {.applicable = !cp::detail::is_too_large(p, {}),
                .knows_storage_options = true,
                .dedicated_thread = may_finish,
                .cooperative = may_finish,
                .first_effort = first_steps,
                .share = share};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        cp_search(state, {.seed = options.seed, .steps = options.effort});
    }
};
static_assert(check_search_strategy<cp_strategy>());

} // namespace optpipe
