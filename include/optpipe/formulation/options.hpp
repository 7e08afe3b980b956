#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <cstddef>
#include <functional>

namespace optpipe::formulation {

/// Whether microbatches may overtake each other. `microbatch_order` explains `forbidden`, and `stash_pool` explains
/// `pooled`.
using optpipe::overtaking;

/// Optional strengthenings of the model. `propagation` and `memory_area` only apply to plain problems.
struct strengthenings {
    /// Fixes the orders and tightens the windows that `propagate_order` deduces from memory and time. Applies only if
    /// microbatches keep their order.
    bool propagation = true;
    /// An operation that follows another also follows all its predecessors.
    bool monotone = true;
    /// No operation ends before the total duration of the operations up to it on its rank.
    bool load = true;
    /// The step ends no earlier than an operation plus all its successors on the rank (Zero Bubble).
    bool tails = true;
    /// By memory × time, a short makespan needs a minimum number of offloaded stashes.
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
