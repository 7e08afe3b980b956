#pragma once

#include "optpipe/core/random.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace optpipe {

/// The moves of `local_search`, each with its weight: how often it is drawn.
enum class sequence_move { swap_blocks, shift_later_ones, shift_neighbours, move_ahead, shift };
enum class transfer_move { keep, offload_another, offload_anew, shift, swap_on_link };
enum class storage_move { as_neighbour, exchange, in_a_row, along_stages, of_one };

template <class Move> struct weighted_move {
    Move move;
    std::size_t weight;
};
/// One move, drawn by weight.
template <class Move>
[[nodiscard]] constexpr Move draw(std::span<const weighted_move<Move>> from, random_numbers& random) {
    std::size_t all = 0;
    for (const auto& each : from)
        all += each.weight;
    auto dice = random.below(all);
    auto at = from.begin();
    for (; dice >= at->weight; ++at)
        dice -= at->weight;
    return at->move;
}

/// What `local_search` tries, and how often. Chances are in percent. All were set by hand when the search was written,
/// and are the same for every problem; none has been tuned on its own.
struct move_parameters {
    /// A backward is split or made whole. Seldom: it changes little else.
    std::size_t full_backward_chance = 8;
    /// With lists of storage options: an option is changed. The others change what is done with the options that were
    /// chosen.
    std::size_t storage_chance = 25;
    /// A computation's stash is moved, rather than the computation.
    std::size_t transfer_chance = 35;

    /// Mostly single shifts, the cheapest to evaluate; the others lead out of local optima of those.
    std::array<weighted_move<sequence_move>, 5> sequence_moves{{{sequence_move::swap_blocks, 3},
                                                                {sequence_move::shift_later_ones, 2},
                                                                {sequence_move::shift_neighbours, 2},
                                                                {sequence_move::move_ahead, 1},
                                                                {sequence_move::shift, 12}}};
    /// The last only on shared links, the first two only where a stash may be kept.
    std::array<weighted_move<transfer_move>, 5> transfer_moves{{{transfer_move::keep, 2},
                                                                {transfer_move::offload_another, 1},
                                                                {transfer_move::offload_anew, 2},
                                                                {transfer_move::shift, 3},
                                                                {transfer_move::swap_on_link, 3}}};
    std::array<weighted_move<storage_move>, 5> storage_moves{{{storage_move::as_neighbour, 1},
                                                              {storage_move::exchange, 2},
                                                              {storage_move::in_a_row, 1},
                                                              {storage_move::along_stages, 1},
                                                              {storage_move::of_one, 5}}};

    /// How far a shift goes, in operations of another kind: a step or two, a few, or up to a part of the lane.
    std::array<weighted_move<std::size_t>, 3> shift_lengths{{{2, 11}, {8, 7}, {0, 2}}};
    std::size_t longest_shift_part = 4; ///< a quarter of the lane
    /// Of the blocks that are swapped, in operations.
    std::size_t first_block_min = 2, first_block_max = 6;
    std::size_t second_block_min = 1, second_block_max = 4;
    /// How long before its start an operation is looked for a place ahead, in halves of a mean duration.
    std::size_t most_halves_ahead = 12;
    /// An offload begins right after the forward; else up to so many operations later.
    std::size_t offload_at_once_chance = 60;
    std::size_t latest_offload = 5;
    /// A reload ends with the gradient's start; else up to so many quarters of its length earlier.
    std::size_t reload_in_time_chance = 40;
    std::size_t earliest_reload_quarters = 13;
    /// A recomputation comes right before the gradient; else up to so many operations earlier.
    std::size_t recompute_at_once_chance = 50;
    std::size_t earliest_recompute = 4;
    /// Of microbatches, or stages, in a row that get another option.
    std::size_t most_in_a_row = 4;
    std::size_t most_along_stages = 3;
};

/// How `local_search` cools and restarts. Temperatures are in mean durations of an operation: a delay of so much is
/// accepted with probability 1/e. Set by hand as those of the moves were.
struct annealing_parameters {
    /// Of the first round, in moves: a part for the start, a part for each cell. Short, so that small problems restart
    /// often; each round is longer.
    double first_round = 3000.0;
    double first_round_per_cell = 4.0;
    double round_growth = 1.6;
    /// Drawn anew in each round: none is best everywhere.
    std::array<double, 5> hot{0.3, 0.06, 0.15, 0.6, 0.1};
    double cold = 0.02;
    /// Of the mean over the ranks in the cost, beside the worst rank.
    std::array<double, 4> mean_weights{0.1, 0.02, 0.3, 0.05};
    /// A path through operations without length may come back: followed for so many times the number of operations.
    std::size_t longest_path = 8;
    /// In mean durations: what ended so long before an operation starts doesn't bind it.
    double farthest_back = 16.0;
    /// One round in so many goes on from where the last one ended, the others from the best.
    std::size_t rounds_per_wandering = 3;
    /// Of all moves: those that begin at any operation rather than at one of a critical path.
    std::size_t anywhere_chance = 40;
    /// Of all moves: those that take an operation out of a block of a critical path, at most so many operations from the
    /// end that it leaves by. Local search alone, 1 to 2 s, on problem files, models and problems drawn at random: 8
    /// instead of 0 better in 9 runs of 16, worse in 4; 20 instead of 8 better in 23 of 50, worse in 13; from 20 to 60,
    /// and from 4 to 16 operations, no difference beyond the spread of seeds.
    std::size_t leave_block_chance = 30;
    std::size_t farthest_from_end_of_block = 8;
    /// Of moves that take too much memory of a rank, with lists of storage options: those that are tried with less of one
    /// stash, which takes longer than to give them up. Local search alone, 2 s, 72 runs on models drawn at random: 40
    /// instead of 0 better in 31, worse in 19, 0.06 % less in the mean.
    std::size_t relief_chance = 40;
    /// A critical path is used so often, and tails so long, before they are found anew: finding them takes longer than
    /// a move, and they grow old.
    std::size_t uses_of_path = 24;
    std::size_t uses_of_tails = 8;
    /// A step visits a part of the schedule that grows with its size: some milliseconds for a million cells.
    std::size_t cells_between_clocks = 640'000;
    std::size_t most_moves_between_clocks = 64;
    std::size_t moves_between_offers = 4096;

    [[nodiscard]] double first_round_of(std::size_t cells) const {
        return first_round + first_round_per_cell * static_cast<double>(cells);
    }
};

/// How long `multi_start_search` searches from each of its starts.
struct multi_start_parameters {
    /// At first, of the first round of an annealing. Plans of 5 s on one thread for 30 models drawn at random, eight
    /// starts instead of one: 10 better by up to 5.1 %, 8 worse by up to 1.3 %, 0.32 % less in the mean; with a whole
    /// first round, and half of the moves for starts, no difference in the mean of 86.
    double first_round = 0.25;
    /// In all, of the time that is left; if they need more, fewer are searched. Eleven drawn models of 1,000 to 2,048
    /// stashes, 10 s, one thread, beside a single start: with all eight 0.71 % longer in the mean, with 0.2 of the time
    /// 0.32 % longer, with 0.1 no difference (0.01 %). Twenty of 256 to 1,000 stashes, 5 s: no difference between 0.1
    /// and all eight (0.09 %).
    double time = 0.1;
    /// Without a deadline, in moves times stashes: half a second, at 0.05 µs each.
    double most_work = 1e7;
};

struct local_search_parameters {
    annealing_parameters annealing{};
    move_parameters moves{};
};

} // namespace optpipe
