#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <cstddef>
#include <functional>

namespace optpipe::formulation {

/// Forbidden: see `microbatch_order`; pooled: see `stash_pool`.
using optpipe::overtaking;

/// Optional strengthenings of the model; each can be switched off to measure its effect.
struct strengthenings {
    /// Fixes the order of operations that fit in one order only, within the horizon.
    bool windows = true;
    /// Fixes the order that a rank's memory implies.
    bool memory_order = true;
    /// An operation after b comes after all predecessors of b.
    bool monotone = true;
    /// No operation ends before all its predecessors on its rank are done.
    bool load = true;
    /// Zero Bubble's: the step doesn't end before all successors of an operation are done.
    bool tails = true;
    /// Memory × time: how many stashes must be offloaded for a makespan.
    bool memory_area = true;
    /// What the transfers of a link take must fit between the first forward and the last gradient.
    bool link_capacity = true;
    /// All triangle inequalities among the orders of a rank's computations: n³/3 rows.
    bool triangles = false;
};

struct options {
    /// The cutoff: longer schedules are excluded. The objective of a known schedule makes the model far tighter.
    duration horizon = duration::unlimited();
    /// A proven lower bound on the objective.
    duration bound{};
    formulation::overtaking overtaking = formulation::overtaking::allowed;
    strengthenings with{};
    /// The row limit: larger models are refused.
    std::size_t most_rows = 2'000'000;
    /// Asked again and again while the order of operations is found, which takes the longest: once it says so, the
    /// model is refused.
    std::function<bool()> stop{};
};

} // namespace optpipe::formulation
