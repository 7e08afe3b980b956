#pragma once

#include "optpipe/core/quantity.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Whether microbatches may come in another order on a later stage, or backward, than on stage 0.
enum class overtaking {
    /// Every kind of every stage runs in the order of the microbatches. Where stashes can travel this may exclude all
    /// optima (see `microbatch_order`): the model's solutions are schedules, but its bound is one on those schedules
    /// alone.
    forbidden,
    /// Wherever it isn't known to be useless: the model is exact.
    as_needed,
    /// As `forbidden`, but it is forgotten whose stash travels (see `stash_pool`): a relaxation, whose bound holds for
    /// all schedules, but whose solutions need not be schedules. Where nothing can travel it is exact.
    pooled,
};

/// What is not needed for the model to be right, so that its worth can be measured.
struct strengthenings {
    /// Fixes the order of operations that fit in one order only, within the horizon.
    bool windows = true;
    /// Fixes the order that a rank's memory implies.
    bool memory_order = true;
    /// Whoever comes after b comes after all that b comes after.
    bool monotone = true;
    /// No operation ends before all that comes before it on its rank is done.
    bool load = true;
    /// Zero Bubble's: the step isn't over before all that comes after an operation is done.
    bool tails = true;
    /// Memory × time: how many stashes must travel for a makespan.
    bool memory_area = true;
    /// What the transfers of a link take must fit between the first forward and the last gradient.
    bool link_capacity = true;
    /// All triangle inequalities among the orders of a rank's computations: n³/3 rows.
    bool triangles = false;
};

struct options {
    /// Schedules that are longer are of no interest. The objective of a known schedule makes the model far tighter.
    duration horizon = duration::unlimited();
    /// A proven lower bound on the objective.
    duration bound{};
    formulation::overtaking overtaking = formulation::overtaking::as_needed;
    strengthenings with{};
    /// What would have more rows is refused.
    std::size_t most_rows = 2'000'000;
};

} // namespace optpipe::formulation
