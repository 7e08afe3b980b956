#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::search {

/// What separators look at and which cuts are taken. All were chosen when they were written; no comparison with other
/// values is on record. Effort is counted in visits of a term, of which ten million take a few hundredths of a second.
struct cut_parameters {
    /// Distances from the point to cuts that are added: nearer ones change little. A pool forgets what has been nearer
    /// for so many rounds.
    double least_efficacy = 1e-4;
    std::size_t most_idle_rounds = 5;
    /// The cosine of two cuts of one round: of more parallel ones the second adds little to the first.
    double most_parallel = 0.6;

    /// Cuts that a relaxation would take for noise: coefficients smaller than the largest by this factor are bounded
    /// away, and a limit above that, with coefficients up to 1, is refused.
    double widest = 1e6;
    double largest_limit = 1e9;
    /// A sum that cancels to less than this share of its parts has lost the digits that a cut needs.
    double least_remainder = 1e-7;

    /// Gomory's cuts: tableau rows, the most fractional first, the terms in them that count, and the effort of a round.
    std::size_t most_tableau_rows = 200;
    double least_multiplier = 1e-9;
    std::size_t gomory_effort = 10'000'000;

    /// Aggregation: rows in a sum, starting rows in succession without a cut, and the effort of a round, after which
    /// the next goes on where it ends.
    std::size_t most_aggregated_rows = 6;
    std::size_t most_failures = 500;
    std::size_t aggregation_effort = 10'000'000;
    /// Relative to its activity, how near to a side a row is tight.
    double nearly_tight = 0.1;

    /// Cliques: members that they are grown from, the most fractional first.
    std::size_t most_clique_starts = 200;

    /// Variable bounds of one column: more are seldom tight at one point. Beyond the coefficient, a binary within its
    /// tolerance of 0 still lets the column move (y ≤ 1e7 x).
    std::size_t most_bounds_per_column = 20;
    double largest_bound_coefficient = 1e5;

    /// Implied bounds: those that are kept of all that probing finds, and the violation at which one becomes a cut.
    std::size_t most_implied_bounds = 50'000;
    double least_violation = 1e-4;

    /// Cut sets: the effort of a round in visits of an arc, some hundredth of a second, after which the next goes on
    /// where it ends; and how far the arcs of a set have to be open together for it to need no more. Each arc counts as
    /// open by `creep` more than it is, so that of sets whose arcs are closed the one with the fewest arcs is found: on
    /// 31 networks, half the nodes.
    std::size_t cut_set_effort = 2'000'000;
    double enough_flow = 0.999;
    double creep = 0.01;
};

} // namespace optpipe::milp::search
