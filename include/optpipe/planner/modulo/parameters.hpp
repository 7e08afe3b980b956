#pragma once

#include "optpipe/core/standard.hpp"

#include <array>
#include <cstddef>

namespace optpipe {

/// How `modulo_search` looks for periods. Set by hand when it was written; each is the same for every problem.
struct period_parameters {
    std::size_t max_periodicity = 4;
    /// A round goes through all periodicities, with wider beams than the last.
    std::size_t max_rounds = 12;
    /// Of partial patterns kept, and of attempts to add a stage to each: those of the first round, and the widest. With
    /// several stages on a rank, the first placements decide whether the last fit, so beams begin wider by a factor.
    std::size_t first_width = 3, max_width = 96;
    std::size_t first_attempts = 8, max_attempts = 256;
    std::size_t coupled_factor = 16;
    /// From the load bound upward, until a pattern is found: the first step, as a part of the bound, and how steps
    /// grow.
    double first_step = 0.0025;
    double step_growth = 1.25;
    /// Between the longest period without and the shortest with a pattern.
    std::size_t bisections = 4;
    /// Later rounds try periods between the load bound (0) and the best (1): the lowest first, as it gains most.
    std::array<double, 5> shares{0.0, 0.3, 0.6, 0.85, 1.0};
    /// A periodicity that is behind the best one by more than this gets no wider beams, after so many rounds.
    double max_ratio = 1.15;
    std::size_t least_rounds = 3;
    /// What it takes to complete a pattern, in attempts to place a stage, for each cell of the step.
    std::size_t completion_effort = 12;
};

/// How `beam_search` grows patterns. Set by hand as those of the periods were.
struct beam_parameters {
    /// Of a period, in a lifespan: of patterns that are equally good the one with fewer transfers goes on.
    double offload_penalty = 0.01;
    /// Of a period: lifespans differ by up to a thousand of these at random, so that the children of one parent don't
    /// fill the beam.
    double tie_breaker = 1e-9;
    /// Attempts at the last stage, which decides for all others: so many for each at another stage, and as many as try
    /// each of its five distances twice.
    std::size_t last_stage_factor = 4;
    std::size_t least_at_last = 10;
    /// Sums of durations of a rank that `packing` keeps to tell whether a gap can be filled; with more it doesn't.
    std::size_t most_sums = 512;
};

/// How `modulo_search` places `wavefronts`.
struct wavefront_parameters {
    /// Beyond the least spacing, in slots per stage: one more leaves room for the weight gradients where memory is
    /// scarcest.
    std::array<double, 5> more_slots{1.0, 0.0, 0.5, 1.5, 2.0};
    /// A gap that is at least this part of a weight gradient's length is filled with one: that of the first attempts,
    /// and those tried at the best spacing.
    double first_fill = 0.95;
    std::array<double, 4> fills{1.0, 0.9, 0.8, 0.7};
    /// What a schedule of the whole step takes, in attempts to place a stage, for each cell.
    std::size_t attempt_effort = 12;
};

/// How `v_pattern_search` looks for periods. Chosen when it was written, not tuned.
struct v_pattern_parameters {
    /// From the load bound upward: the first step, as a part of the bound, and how steps grow.
    double first_step = 0.005;
    double step_growth = 1.5;
    /// Of partial patterns kept: of the first beams, and of the widest.
    std::size_t first_width = 4, max_width = 64;
    /// Of a period: how far the costs of partial patterns are disturbed, in half of the beams.
    double noise = 0.1;
};

/// How `modulo_search` completes patterns and repeats the steady state.
struct steady_state_parameters {
    /// The reduced problem has microbatches for so many pipelines, each at least of so many ranks: enough for prologue
    /// and epilogue.
    std::size_t pipelines = 4;
    std::size_t least_ranks = 4;
    /// A completed schedule may be faster than its period says, but by no more than this.
    double completion_gain = 0.97;
    /// Each pattern is completed with forwards so far ahead: see `completion_options`.
    std::array<double, 5> ahead{0.0, 0.25, 0.5, 0.75, 1.0};
    /// In eight problems (8 and 32 ranks, unit costs) prologue and epilogue gained nothing; 5 % is more than they hold.
    double max_ratio = 1.05;
    /// Where the repeated segment is looked for, as parts of the step: in the middle, where the state is steady.
    std::array<double, 3> segment_places{0.35, 0.5, 0.65};
    /// A segment repeated so often and so often tells how long more repetitions take.
    std::size_t few_repetitions = 2;
    std::size_t more_repetitions = 6;
    /// Microbatches of a segment: divisors of the last, so that one reduced problem serves all.
    std::array<std::size_t, 6> counts{1, 2, 3, 4, 6, 12};
};

struct modulo_parameters {
    period_parameters period{};
    wavefront_parameters wavefronts{};
    steady_state_parameters steady{};
};

} // namespace optpipe
