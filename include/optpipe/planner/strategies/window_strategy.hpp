#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/lns/window_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// `window_search` as a strategy.
struct window_strategy {
    static constexpr std::string_view name = "windows";
    /// Passes for a single window of any size, including all other operations, which keep their order. Measured.
    static constexpr double least_passes = 15.0;

    [[nodiscard]] static strategy_traits traits(const problem&) {
        return {.knows_storage_options = true,
                .randomized = true,
                .first_effort = 0, // a single window may take a tenth of a second
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        window_search(state, {.seed = options.seed, .windows = options.effort});
    }
};
static_assert(check_search_strategy<window_strategy>());

} // namespace optpipe
