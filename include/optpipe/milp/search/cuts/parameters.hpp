#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::search {

/// Limits of the separators, and the choice of cuts. Not tuned. Effort is counted in visits of a term; ten million take
/// a few hundredths of a second.
struct cut_parameters {
    /// Least distance from the point to a cut that is added, as nearer cuts change little. A pool deletes a cut that
    /// was nearer than this in `most_idle_rounds` rounds in a row.
    double least_efficacy = 1e-4;
    std::size_t most_idle_rounds = 5;
    /// Largest cosine of two cuts of one round, as more parallel cuts add little.
    double most_parallel = 0.6;

    /// Limits against cuts that a relaxation would treat as noise. A term whose coefficient is smaller than the largest
    /// by the factor `widest` is replaced by the bound of its variable. A cut whose right-hand side exceeds
    /// `largest_limit` is rejected; coefficients are first scaled to at most 1.
    double widest = 1e6;
    double largest_limit = 1e9;
    /// A sum that cancels to less than this share (0 to 1) of its terms has lost the digits that a cut needs.
    double least_remainder = 1e-7;

    /// Gomory's cuts: the number of tableau rows, the most fractional first; the least multiplier that counts; and the
    /// effort per round.
    std::size_t most_tableau_rows = 200;
    double least_multiplier = 1e-9;
    std::size_t gomory_effort = 10'000'000;

    /// Aggregation: the most rows per sum; the most starting rows in succession that give no cut; and the effort per
    /// round. The next round continues where the last one ended.
    std::size_t most_aggregated_rows = 6;
    std::size_t most_failures = 500;
    std::size_t aggregation_effort = 10'000'000;
    /// A row counts as tight if its activity is nearer to a side than this share (0 to 1) of the activity.
    double nearly_tight = 0.1;

    /// Cliques: the number of members that cliques are grown from, the most fractional members first.
    std::size_t most_clique_starts = 200;

    /// Variable bounds: the number of them per column, as more bounds are seldom tight at one point; and the largest
    /// coefficient. With a larger coefficient, a binary that is 0 within its tolerance still lets the column move (y ≤
    /// 1e7 x).
    std::size_t most_bounds_per_column = 20;
    double largest_bound_coefficient = 1e5;

    /// Implied bounds: the number of them that probing keeps, and the violation at which such a bound becomes a cut.
    std::size_t most_implied_bounds = 50'000;
    double least_violation = 1e-4;

    /// Cut sets. The effort per round of cut sets is in visits of an arc, and takes some hundredths of a second; the
    /// next round continues where the last one ended. No cut is needed if the share `enough_flow` of the demand can
    /// flow. `creep` is added to the capacity of each arc. If the arcs of several cuts are closed, `creep` selects the
    /// cut with the fewest arcs. On 31 networks, `creep` halves the number of search nodes.
    std::size_t cut_set_effort = 2'000'000;
    double enough_flow = 0.999;
    double creep = 0.01;
};

} // namespace optpipe::milp::search
