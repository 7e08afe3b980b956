#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// `local_search` as a strategy.
struct local_search_strategy {
    static constexpr std::string_view name = "local-search";
    /// The first call makes max(`first_cells` / cells, `least_moves`) moves. The first call takes some tens of
    /// milliseconds, at 0.02 to 0.1 µs per move and stash. The measured times of earlier calls decide the length of
    /// later calls.
    static constexpr std::size_t least_moves = 10;
    static constexpr std::size_t first_cells = 500'000;
    /// Time of the setup, as a number of passes through the problem. Measured for 4 ranks and 100,000 microbatches.
    static constexpr double least_passes = 10.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.knows_storage_options = true,
                .randomized = true,
                .first_effort = std::max(least_moves, first_cells / p.graph.cells()),
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        local_search(state, {.seed = options.seed, .moves = options.effort});
    }
};
static_assert(check_search_strategy<local_search_strategy>());

} // namespace optpipe
