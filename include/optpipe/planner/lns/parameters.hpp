#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe {

/// How `window_search` draws windows. The same for every problem; not tuned, unless a comment says otherwise.
struct window_parameters {
    /// Computations in a window: at first, at least and at most; and the factor by which it changes. Windows that are
    /// searched completely grow, the others shrink. Larger windows contain better schedules, but more of them are given
    /// up.
    double first_size = 24.0;
    double least_size = 12.0;
    std::size_t most_size = 400;
    double growth = 1.2;
    /// Conflict limit of a window: a few tenths of a second for the largest.
    std::size_t conflicts = 400;
    /// Decay of the gain and cost recorded for a kind of window, in (0, 1), per window of that kind. A higher one takes
    /// longer to notice that a kind no longer gains.
    double memory = 0.85;
    /// The weight of a kind that gains nothing, relative to the most successful one (1).
    double exploration = 0.1;
    /// The window begins between 1 and `parts_before` − 1 parts of its length before its center; `parts_before` parts
    /// are the length.
    std::size_t parts_before = 4;
    /// Windows of transfers hold no computations: they are on fewer ranks, and longer by a factor.
    std::size_t most_transfer_ranks = 4;
    double transfer_length = 3.0;
    /// Percentage of the other kinds of windows that open the storage options of their stashes. On seven problems,
    /// three seeds, 2.5 s of the processor, only windows: with 50 instead of 0, one schedule was 7 % shorter, the
    /// others were within 0.7 %.
    std::size_t open_storage_chance = 50;
    /// Windows for storage options are on a few ranks, and a stash may change to a few options of its stage. More ranks
    /// or options make larger models.
    std::size_t most_storage_ranks = 4;
    std::size_t storage_candidates = 3;
    /// Percentage of these options that are drawn from those in use on the stage, rather than from its whole list.
    std::size_t used_candidate_chance = 50;
    /// A window at either end is longer by a factor, because the ranks idle there.
    double end_length = 2.0;
    /// Added to the conflicts and to the tasks of a window to estimate its cost: even a window without any takes time.
    std::size_t least_cost = 10;
};

} // namespace optpipe
