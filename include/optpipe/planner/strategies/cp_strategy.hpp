#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/cells_of.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// `cp_search` as a strategy.
struct cp_strategy {
    static constexpr std::string_view name = "cp";
    [[nodiscard]] static strategy_traits traits(const problem& p) {
        const auto cells = detail::cells_of(p);
        const bool small = cells <= 130; // in larger problems the first propagation alone takes seconds
        return {.applicable = cells <= 400,
                .knows_storage_options = true,
                .dedicated_thread = small,
                .first_effort = small ? std::max<std::size_t>(10, 800 / cells) : 0,
                .share = 2.0};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        cp_search(state, {.seed = options.seed, .conflicts = options.effort});
    }
};
static_assert(check_search_strategy<cp_strategy>());

} // namespace optpipe
