#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/periodic/long_run.hpp"
#include "optpipe/planner/periodic/period_search.hpp"
#include "optpipe/planner/periodic/wavefronts.hpp"
#include "optpipe/planner/window_search.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace optpipe {

struct periodic_options {
    std::uint64_t seed = 1;
    /// Placements of a stage to look at while searching for periods; about a quarter of a microsecond each.
    std::size_t effort = 20'000'000;
    /// What improves the schedule of the step with few microbatches before it is stretched.
    std::function<void(search_board&)> improve = [](search_board& few) { window_search(few, {.windows = 40}); };
};

/// Solves a long run as a short one: finds the best period that a few microbatches can repeat within the memory, lets
/// the ends follow from it, improves them in a step of only as many microbatches as the ends need, and repeats the
/// middle as often as the problem has more. What it costs hardly depends on the number of microbatches. Before that,
/// the whole step in slots (`wavefronts`), whose period may be that of many microbatches.
///
/// Offers everything it finds; returns when the board is done or the effort is spent.
inline void periodic_core(search_board& board, const periodic_options& options = {}) {
    std::size_t spent = 0;
    if (detail::suits_wavefronts(board.to_solve()))
        spent = detail::search_wavefronts(
            board.to_solve(), options.effort / 2,
            [&](const schedule& found) { return board.offer(found, "wavefronts"); }, [&] { return board.done(); });
    if (board.done() || spent >= options.effort) return;
    detail::long_run run{board};
    detail::period_search search{run.reduced(), options.seed, options.effort - spent,
                                 [&](const periodic_pattern& found) { run.offer(found); },
                                 [&] { return board.done(); }};
    search.run();
    if (!board.done()) run.finish(options.improve);
}

} // namespace optpipe
