#pragma once

#include "optpipe/core/standard.hpp"

#include <array>
#include <cstddef>

namespace optpipe {

/// How `modulo_search` searches for periods. All values are the same for every problem, and not tuned.
struct period_parameters {
    std::size_t max_periodicity = 4;
    /// Number of rounds. A round tries all periodicities, with wider beams or more attempts than the previous round.
    std::size_t max_rounds = 12;
    /// Number of kept partial patterns (width), and number of attempts per pattern to add a stage. Width and number
    /// grow from the first round to a maximum. The first values are multiplied by `coupled_factor` if ranks have
    /// several stages and the periodicity is 1. The first placements then decide whether the last placements fit.
    std::size_t first_width = 3, max_width = 96;
    std::size_t first_attempts = 8, max_attempts = 256;
    std::size_t coupled_factor = 16;
    /// Periods increase in steps from the load bound until a pattern is found. The two values are the first step, as a
    /// share of the bound, and the growth factor of steps.
    double first_step = 0.0025;
    double step_growth = 1.25;
    /// Number of bisection steps between the longest period without a pattern and the shortest period with a pattern.
    std::size_t bisections = 4;
    /// Later rounds try periods between the load bound (share 0) and the best period (share 1). The shortest period is
    /// tried first: it would gain the most.
    std::array<double, 5> shares{0.0, 0.3, 0.6, 0.85, 1.0};
    /// After `least_rounds` rounds, a periodicity is skipped if its best period exceeds `max_ratio` times the best
    /// period of all.
    double max_ratio = 1.15;
    std::size_t least_rounds = 3;
    /// Effort of completing a pattern, for each cell of the step. Measured as a number of attempts to place a stage.
    std::size_t completion_effort = 12;
};

/// How `beam_search` grows patterns. Not tuned.
struct beam_parameters {
    /// Penalty in periods for each offloaded stash. Among equally good patterns, those with fewer transfers are kept.
    double offload_penalty = 0.01;
    /// Unit of random numbers that are added to lifespans, in periods. Up to a thousand units are added to break ties
    /// at random.
    double tie_breaker = 1e-9;
    /// The last stage has `last_stage_factor` times the attempts of another stage, plus `least_at_last`.
    /// `least_at_last` suffices to try each of five distances twice. The last stage has more attempts: its slots
    /// determine the slots of all other stages.
    std::size_t last_stage_factor = 4;
    std::size_t least_at_last = 10;
    /// `modulo_packing` keeps at most this number of subset sums for each rank, to tell whether a gap can be filled. If
    /// a rank has more subset sums, its gaps aren't checked.
    std::size_t most_sums = 512;
};

/// How `modulo_search` places `wavefronts`. Not tuned.
struct wavefront_parameters {
    /// Spacings to try. A number n stands for the least spacing times 1 + n / stages. With n = 1, there is room for the
    /// weight gradients if memory is scarcest.
    std::array<double, 5> more_slots{1.0, 0.0, 0.5, 1.5, 2.0};
    /// A weight gradient fills a gap that has at least this share of the gradient's length. Every spacing is tried with
    /// `first_fill`. Afterwards, the best spacing is tried with each of `fills`.
    double first_fill = 0.95;
    std::array<double, 4> fills{1.0, 0.9, 0.8, 0.7};
    /// Effort, per cell, for making a schedule of the complete step. The unit of effort is one attempt to place a
    /// stage.
    std::size_t attempt_effort = 12;
};

/// How `modulo_search` completes patterns and repeats the steady state. Not tuned, unless a comment says otherwise.
struct steady_state_parameters {
    /// Approximate number of microbatches per rank in the reduced problem. The default suffices for prologue and
    /// epilogue. A problem with fewer ranks is treated as if it had `least_ranks` ranks.
    std::size_t pipelines = 4;
    std::size_t least_ranks = 4;
    /// Estimated least ratio of the objective of a completed schedule to (number of microbatches · period). If even
    /// this ratio would give no improvement, the pattern isn't completed.
    double completion_gain = 0.97;
    /// Each pattern is completed with each of these values of `completion_options::ahead`.
    std::array<double, 5> ahead{0.0, 0.25, 0.5, 0.75, 1.0};
    /// The best schedule isn't unrolled if it exceeds the incumbent by this factor. Improving prologue and epilogue is
    /// assumed to gain at most 5 %. On eight problems (8 and 32 ranks, unit costs), the improvement gained nothing.
    double max_ratio = 1.05;
    /// The search looks for a repeated segment near these positions in the step. A position is a share of the step's
    /// length. In the middle, the state is steady.
    std::array<double, 3> segment_places{0.35, 0.5, 0.65};
    /// Two numbers of repetitions of a segment. The objectives with these two numbers are extrapolated to more
    /// repetitions.
    std::size_t few_repetitions = 2;
    std::size_t more_repetitions = 6;
    /// Numbers of microbatches of a segment. Each number divides the last number, so one reduced problem suffices.
    std::array<std::size_t, 6> counts{1, 2, 3, 4, 6, 12};
};

struct modulo_parameters {
    period_parameters period{};
    wavefront_parameters wavefronts{};
    steady_state_parameters steady{};
};

} // namespace optpipe
