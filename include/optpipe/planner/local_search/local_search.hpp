#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/planner/local_search/annealer.hpp"
#include "optpipe/planner/local_search/parameters.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace optpipe {

struct local_search_options {
    std::uint64_t seed = 1;
    /// Limit on the number of moves. If the search ends at this limit and runs alone, the result depends only on
    /// problem and seed.
    std::size_t moves = std::numeric_limits<std::size_t>::max();
    local_search_parameters with{};
};

/// Improves the incumbent by simulated annealing. Makes small changes to sequences and storage options until the search
/// is done or the limit on moves is reached. Starts from a simple schedule if there is no incumbent. Improvements are
/// offered.
///
/// Single-threaded. Several calls may share one state, best with different seeds.
inline void local_search(search_state& state, const local_search_options& options = {}) {
    if (!state.incumbent()) {
        const adaptive_builder<> quick{.effort = 1};
        const auto built = quick(state.problem(), stop_check{state});
        if (!built) return;
        state.offer(*built, "adaptive");
    }
    if (!state.incumbent() || state.done()) return;
    detail::annealer{state, options.seed, options.moves, options.with}.run();
}

} // namespace optpipe
