#pragma once

#include "optpipe/core/random.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace optpipe {

/// The moves of `local_search`. A move's chance is proportional to its weight.
enum class sequence_move { swap_blocks, shift_later_ones, shift_neighbours, move_ahead, shift };
enum class transfer_move { place_anew, shift, swap_on_link };
enum class storage_move { as_neighbour, exchange, in_a_row, along_stages, of_one };

template <class Move> struct weighted_move {
    Move move;
    std::size_t weight;
};
/// A random move, drawn by weight.
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

/// The moves of `local_search` and their probabilities. Chances are percentages. All values are the same for every
/// problem, and not tuned.
struct move_parameters {
    /// Chance of a move that splits a full backward or joins I and W. The chance is small, because the move hardly
    /// changes the order.
    std::size_t full_backward_chance = 8;
    /// Chance of a move that changes a storage option. Chances of 10 and 25 were compared on 48 random problems with
    /// several options (40,000 moves, three seeds). Objectives were equal (within 0.1 %). With 25, moves took an eighth
    /// longer on average: a change of option affects many operations.
    std::size_t storage_chance = 10;
    /// Chance of a move that changes the transfers of a computation's stash and doesn't move the computation. If the
    /// stash isn't offloaded, the move changes the stash's option.
    std::size_t transfer_chance = 35;

    /// Weights of the moves of sequences. Most moves are single shifts, which are the fastest to evaluate. All other
    /// moves can escape from local optima of single shifts.
    std::array<weighted_move<sequence_move>, 5> sequence_moves{{{sequence_move::swap_blocks, 3},
                                                                {sequence_move::shift_later_ones, 2},
                                                                {sequence_move::shift_neighbours, 2},
                                                                {sequence_move::move_ahead, 1},
                                                                {sequence_move::shift, 12}}};
    /// Weights of the moves of transfers. The last move is used only on shared links.
    std::array<weighted_move<transfer_move>, 3> transfer_moves{
        {{transfer_move::place_anew, 2}, {transfer_move::shift, 3}, {transfer_move::swap_on_link, 3}}};
    std::array<weighted_move<storage_move>, 5> storage_moves{{{storage_move::as_neighbour, 1},
                                                              {storage_move::exchange, 2},
                                                              {storage_move::in_a_row, 1},
                                                              {storage_move::along_stages, 1},
                                                              {storage_move::of_one, 5}}};

    /// Weights of the lengths of a shift. A length counts the passed operations of another kind or stage. Lengths are
    /// at most two, at most eight, or at most a part of the lane (0).
    std::array<weighted_move<std::size_t>, 3> shift_lengths{{{2, 11}, {8, 7}, {0, 2}}};
    std::size_t longest_shift_part = 4; ///< the longest shift is a quarter of the lane
    /// Lengths of the swapped blocks, in operations.
    std::size_t first_block_min = 2, first_block_max = 6;
    std::size_t second_block_min = 1, second_block_max = 4;
    /// Longest time by which `move_ahead` moves an operation ahead, in halves of a mean duration.
    std::size_t most_halves_ahead = 12;
    /// Chance that an offload begins right after its forward. If not, fewer than `latest_offload` operations come
    /// between the forward and the offload.
    std::size_t offload_at_once_chance = 60;
    std::size_t latest_offload = 5;
    /// Chance that a reload ends at the gradient's start. All other reloads end earlier, by fewer than
    /// `earliest_reload_quarters` quarters of their length.
    std::size_t reload_in_time_chance = 40;
    std::size_t earliest_reload_quarters = 13;
    /// Chance that a recomputation comes right before the gradient. All other recomputations start earlier, with fewer
    /// than `earliest_recompute` operations in between.
    std::size_t recompute_at_once_chance = 50;
    std::size_t earliest_recompute = 4;
    /// Largest number of consecutive microbatches, or stages, that get another option in one move.
    std::size_t most_in_a_row = 4;
    std::size_t most_along_stages = 3;
};

/// How `local_search` cools and restarts. The unit of temperatures is the mean duration of an operation. A
/// delay that equals the temperature is accepted with probability 1/e. Not tuned, unless a comment says otherwise.
struct annealing_parameters {
    /// Number of moves of the first round. The number is a constant, plus a term for each cell. The first round is
    /// short: small problems restart often. Each round is longer than the previous round by the factor `round_growth`.
    double first_round = 3000.0;
    double first_round_per_cell = 4.0;
    double round_growth = 1.6;
    /// Initial temperatures of the rounds. The temperatures differ, because no temperature is best for all problems.
    /// All rounds end at `cold`.
    std::array<double, 5> hot{0.3, 0.06, 0.15, 0.6, 0.1};
    double cold = 0.02;
    /// Weight of the mean over all ranks in the cost, relative to the weight of the worst rank. The array has one
    /// weight per round.
    std::array<double, 4> mean_weights{0.1, 0.02, 0.3, 0.05};
    /// Limit on the length of a path, as a multiple of the number of operations. A limit is needed because a path
    /// through operations without duration may go round in a cycle.
    std::size_t longest_path = 8;
    /// A time in mean durations. An operation can determine a start only if at most this time lies between the
    /// operation's end and the start.
    double farthest_back = 16.0;
    /// One round in `rounds_per_wandering` continues from the end of the previous round. All other rounds continue from
    /// the best state.
    std::size_t rounds_per_wandering = 3;
    /// Percentage of moves that begin at any operation. The remaining moves begin at an operation of a critical path.
    std::size_t anywhere_chance = 40;
    /// Percentage of moves that take an operation out of a block of a critical path. The operation moves past one end
    /// of the block. The operation is at most `farthest_from_end_of_block` operations away from the end of its block.
    /// Chances were compared in runs of 1 to 2 s of local search alone, on problem files, models and random problems. A
    /// chance of 8 was better than 0 in 9 runs of 16 and worse in 4. A chance of 20 was better than 8 in 23 runs of 50
    /// and worse in 13. Chances from 20 to 60, and distances from 4 to 16 operations, made no difference beyond the
    /// spread of seeds.
    std::size_t leave_block_chance = 30;
    std::size_t farthest_from_end_of_block = 8;
    /// Chance in percent of a second try, with a smaller stash, for a move that takes too much memory. A second try
    /// takes longer than dropping the move. Chances of 40 and 0 were compared in 72 runs of 2 s of local search alone,
    /// on random models. A chance of 40 was better in 31 runs and worse in 19, with 0.06 % lower objectives on average.
    /// With 40,000 moves on each of 24 random problems with offloading alone, objectives were 0.13 % lower (standard
    /// error 0.12).
    std::size_t relief_chance = 40;
    /// Number of uses of a critical path or of tails until a new one is computed. Computing a path or tails takes
    /// longer than a move, but old paths and tails are less accurate.
    std::size_t uses_of_path = 24;
    std::size_t uses_of_tails = 8;
    /// The number of moves between two reads of the clock is `cells_between_clocks` / cells, at most
    /// `most_moves_between_clocks`. With a million cells, a move takes some milliseconds.
    std::size_t cells_between_clocks = 640'000;
    std::size_t most_moves_between_clocks = 64;
    std::size_t moves_between_offers = 4096;

    [[nodiscard]] double first_round_of(std::size_t cells) const {
        return first_round + first_round_per_cell * static_cast<double>(cells);
    }
};

/// The effort of `multi_start_search` for each of its starts.
struct multi_start_parameters {
    /// Moves of the first round, as a share of an annealing's first round. Eight starts were compared with one start in
    /// plans of 5 s on one thread (30 random models). With eight starts, 10 plans were better (by up to 5.1 %) and 8
    /// worse (by up to 1.3 %). Objectives were 0.32 % lower on average. A share of 1 with half of all moves for the
    /// starts gave the objectives of one start (mean of 86 models).
    double first_round = 0.25;
    /// Share of the remaining time for all starts together. If this time doesn't suffice, fewer starts are searched.
    /// Eleven random models of 1,000 to 2,048 stashes were planned for 10 s on one thread. Steps with eight starts were
    /// 0.71 % longer than with one start. With a share of 0.2, steps were 0.32 % longer, and with 0.1 equal (within
    /// 0.01 %). On twenty models of 256 to 1,000 stashes with 5 s, 0.1 and eight starts gave equal steps (within 0.09
    /// %).
    double time = 0.1;
    /// Limit on the work if there is no deadline. Work is the number of moves times the number of stashes. At 0.05 µs
    /// per unit, the searches take half a second.
    double most_work = 1e7;
};

struct local_search_parameters {
    annealing_parameters annealing{};
    move_parameters moves{};
};

} // namespace optpipe
