#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::search {

/// Limits of the separators, and the choice of cuts. Not tuned. Effort is the number of visits of a term. Ten million
/// visits take a few hundredths of a second.
struct cut_parameters {
    /// A cut must be at least `least_efficacy` away from the point. A pool deletes a cut whose distance stays below
    /// `least_efficacy` for `most_idle_rounds` consecutive rounds.
    double least_efficacy = 1e-4;
    std::size_t most_idle_rounds = 5;
    /// Largest cosine between two cuts of one round. A cut adds little if it is nearly parallel to another cut.
    double most_parallel = 0.6;

    /// Limits against cuts that a relaxation would treat as noise. A coefficient below the largest coefficient /
    /// `widest` is replaced by a bound of its variable. Cuts need right-hand sides of at most `largest_limit`, with
    /// coefficients scaled to at most 1.
    double widest = 1e6;
    double largest_limit = 1e9;
    /// Least remainder after cancellation, as a share (0 to 1) of a sum's terms.
    double least_remainder = 1e-7;

    /// Limits of Gomory's cuts: tableau rows, least multiplier, and effort per round. The most fractional rows come
    /// first.
    std::size_t most_tableau_rows = 200;
    double least_multiplier = 1e-9;
    std::size_t gomory_effort = 10'000'000;

    /// Limits of aggregation: rows per sum, consecutive starting rows without a cut, and effort per round. Each round
    /// continues where the previous round ended.
    std::size_t most_aggregated_rows = 6;
    std::size_t most_failures = 500;
    std::size_t aggregation_effort = 10'000'000;
    /// A row is tight if its slack is below this share (0 to 1) of its activity.
    double nearly_tight = 0.1;

    /// Number of members from which cliques are grown. The most fractional members come first.
    std::size_t most_clique_starts = 200;

    /// Limits of variable bounds: the number per column, and the largest coefficient. Only few bounds of a column are
    /// tight at one point. With y ≤ 1e7 x, the column y could move although x is 0 within the tolerance.
    std::size_t most_bounds_per_column = 20;
    double largest_bound_coefficient = 1e5;

    /// Number of implied bounds that probing keeps, and the least violation of a cut.
    std::size_t most_implied_bounds = 50'000;
    double least_violation = 1e-4;

    /// Limits of cut sets. The effort per round is the number of visits of an arc. Each round takes some hundredths of
    /// a second, and continues where the previous round ended. A node needs no cut if the share `enough_flow` of its
    /// demand can reach it. `creep` is added to the capacity of each arc. If the arcs of several cuts are closed,
    /// `creep` selects the cut with the fewest arcs. On 31 networks, `creep` halves the number of search nodes.
    std::size_t cut_set_effort = 2'000'000;
    double enough_flow = 0.999;
    double creep = 0.01;
};

} // namespace optpipe::milp::search
