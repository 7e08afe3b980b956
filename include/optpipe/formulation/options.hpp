#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <cstddef>
#include <functional>

namespace optpipe::formulation {

/// Whether microbatches may overtake each other. `microbatch_order` explains `forbidden`, and `stash_pool` explains
/// `pooled`.
using optpipe::overtaking;

/// Optional strengthenings of the model. Each strengthening can be switched off to measure its effect. `propagation`
/// and `memory_area` only apply to plain problems.
struct strengthenings {
    /// Fixes the orders and tightens the windows that `propagate_order` deduces from memory and time. Applies only if
    /// the operations of each kind and stage run in the order of microbatches.
    bool propagation = true;
    /// Adds the constraint that an operation that follows another operation also follows all predecessors of that
    /// operation.
    bool monotone = true;
    /// Adds the constraint that no operation ends before all its predecessors on its rank have run.
    bool load = true;
    /// Adds Zero Bubble's rows, which state that the step doesn't end before all successors of an operation have run.
    bool tails = true;
    /// Adds a constraint from memory × time: if the makespan is short, a minimum number of stashes must be offloaded.
    bool memory_area = true;
};

struct options {
    /// The cutoff. Schedules with a larger objective are excluded. The objective of a known schedule makes the model
    /// far tighter.
    duration horizon = duration::unlimited();
    /// A proven lower bound on the objective.
    duration bound{};
    formulation::overtaking overtaking = formulation::overtaking::allowed;
    strengthenings with{};
    /// Largest number of rows. Larger models are refused. Not tuned.
    std::size_t most_rows = 2'000'000;
    /// Polled while the order of operations is determined. Once `stop` returns true, the model is refused.
    std::function<bool()> stop{};
};

} // namespace optpipe::formulation
