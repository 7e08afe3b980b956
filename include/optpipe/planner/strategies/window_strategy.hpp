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
    static constexpr bool randomized = true;
    /// For a single window of any size: everything else keeps its order.
    static constexpr double least_passes = 15.0;
    /// A single window may take a tenth of a second.
    [[nodiscard]] static std::size_t first_effort(const problem&) { return 0; }
    void operator()(search_state& state, const strategy_options& options) const {
        window_search(state, {.seed = options.seed, .windows = options.effort});
    }
};
static_assert(check_search_strategy<window_strategy>());

} // namespace optpipe
