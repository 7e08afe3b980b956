#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe {

/// How `window_search` draws windows. All were set by hand when it was written, and are the same for every problem;
/// none has been tuned on its own.
struct window_parameters {
    /// Computations in a window: the first, the least and the most. Windows that are searched completely grow, the
    /// others shrink: larger ones hold better schedules, and more of them are given up.
    double first_size = 24.0;
    double least_size = 12.0;
    std::size_t most_size = 400;
    double growth = 1.2;
    /// The conflict limit of a window: a few tenths of a second of the largest.
    std::size_t conflicts = 400;
    /// Of what is known of a kind of window, the part that the next one of it keeps: a higher one forgets more slowly
    /// that a kind has stopped to gain.
    double memory = 0.85;
    /// The weight of a kind that gains nothing, beside that of the most successful one (1).
    double exploration = 0.1;
    /// The window begins up to so many parts of its length before its center, one to the last but one.
    std::size_t parts_before = 4;
    /// Windows of transfers hold no computations: they are on fewer ranks, and longer by a factor.
    std::size_t most_transfer_ranks = 4;
    double transfer_length = 3.0;
    /// Of windows of the other kinds, in percent: those that open the storage options of the stashes that lie within.
    /// On seven problems, three seeds, 2.5 s of the processor, windows alone: with 50 instead of 0 one was 7 % shorter,
    /// the others within 0.7 %.
    std::size_t open_storage_chance = 50;
    /// Windows for storage options are on a few ranks, and a stash may change to some of the options of its stage: more
    /// of either make larger models.
    std::size_t most_storage_ranks = 4;
    std::size_t storage_candidates = 3;
    /// Of those, in percent: one that another microbatch of the stage uses, rather than any.
    std::size_t used_candidate_chance = 50;
    /// A window at either end is longer by a factor: the ranks idle there.
    double end_length = 2.0;
    /// Added to the conflicts and tasks of a window to estimate its cost: what it takes without any.
    std::size_t least_cost = 10;
};

} // namespace optpipe
