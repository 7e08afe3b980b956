#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/cells_of.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// `local_search` as a strategy.
struct local_search_strategy {
    static constexpr std::string_view name = "local-search";
    [[nodiscard]] static strategy_traits traits(const problem& p) {
        const auto cells = detail::cells_of(p);
        return {.knows_storage_options = true,
                .randomized = true,
                .first_effort = std::max<std::size_t>(10, std::min(400'000 / cells, 32'000'000 / (cells * cells))),
                .least_passes = 10.0}; // for the setup, measured for 4 ranks and 100,000 microbatches
    }
    void operator()(search_state& state, const strategy_options& options) const {
        local_search(state, {.seed = options.seed, .moves = options.effort});
    }
};
static_assert(check_search_strategy<local_search_strategy>());

} // namespace optpipe
