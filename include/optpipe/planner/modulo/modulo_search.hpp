#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/planner/modulo/period_search.hpp"
#include "optpipe/planner/modulo/steady_state.hpp"
#include "optpipe/planner/modulo/wavefronts.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace optpipe {

struct modulo_options {
    std::uint64_t seed = 1;
    /// Limit on the number of stage placements that are tried in the search for periods. Each placement takes about a
    /// quarter of a microsecond.
    std::size_t effort = 20'000'000;
    /// Improves the schedule of the reduced problem before it is unrolled, for example with `local_search`. Without a
    /// function, the schedule is unrolled as it is.
    std::function<void(search_state&)> improve{};
    modulo_parameters with{};
};

/// Modulo scheduling. Finds the shortest period in which a few microbatches can repeat within the memory limits.
/// Completes the pattern with a prologue and an epilogue. The pattern is completed in a reduced problem, with only the
/// microbatches of prologue and epilogue. In the reduced problem, `improve` may change prologue and epilogue. The
/// steady state is then unrolled to all microbatches. The effort hardly depends on the number of microbatches. Before
/// the search for a period, `wavefronts` are tried on the complete step.
///
/// Offers every schedule found. Returns when the search is done or the effort is used up.
inline void modulo_search(search_state& state, const modulo_options& options = {}) {
    const stop_check done{state};
    std::size_t spent = 0;
    if (detail::applies_wavefronts(state.problem()))
        spent = detail::search_wavefronts(
            state.problem(), options.effort / 2,
            [&](const schedule& found) { return state.offer(found, "wavefronts"); }, done, options.with.wavefronts,
            stop_check{state.limits().abandon});
    if (state.done() || spent >= options.effort) return;
    detail::steady_state run{state, options.with.steady};
    detail::period_search search{run.reduced(),
                                 options.seed,
                                 options.effort - spent,
                                 [&](const periodic_pattern& found) { run.offer(found); },
                                 done,
                                 options.with.period};
    search.run();
    if (!state.done()) run.finish(options.improve);
}

} // namespace optpipe
