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
    static constexpr double share = 2.0;
    [[nodiscard]] static bool applies_to(const problem& p) { return detail::cells_of(p) <= 400; }
    /// In large problems the first propagation alone takes seconds.
    [[nodiscard]] static std::size_t first_effort(const problem& p) {
        const auto cells = detail::cells_of(p);
        return cells > 130 ? 0 : std::max<std::size_t>(10, 800 / cells);
    }
    [[nodiscard]] static bool dedicated_thread(const problem& p) { return detail::cells_of(p) <= 130; }
    void operator()(search_state& state, const strategy_options& options) const {
        cp_search(state, {.seed = options.seed, .conflicts = options.effort});
    }
};
static_assert(check_search_strategy<cp_strategy>());

} // namespace optpipe
