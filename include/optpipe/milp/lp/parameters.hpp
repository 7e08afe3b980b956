#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::lp {

/// What the simplex methods trade: small pivots and old factors for iterations, lists of nonzeros for dense loops. All
/// were chosen when the methods were written, near what the papers that they cite use; no comparison with other values
/// is on record. Sizes of numbers are in scaled terms.
struct simplex_parameters {
    // Pivots.

    /// The least that the dual method takes after few, some and many updates of the factors, each of which adds to
    /// their error.
    int few_updates = 10;
    int many_updates = 20;
    double least_pivot_of_few = 1e-9;
    double least_pivot_of_some = 3e-8;
    double least_pivot_of_many = 1e-7;
    /// The same for the primal method, with factors that were just made and with updated ones.
    double least_pivot_of_fresh = 1e-9;
    double least_pivot_of_updated = 1e-8;
    /// A smaller one is trusted only when the factors were just made, and none that is computed by row and by column
    /// with a larger difference, relative to what is above 1.
    double trusted_pivot = 1e-7;
    double pivot_agreement = 1e-7;
    /// Of the largest pivot among earlier groups of breakpoints, what a later group needs: it goes farther.
    double share_of_largest_pivot = 0.1;
    /// Each group of breakpoints reaches farther than the last by this factor, as long as all of it flips anyway.
    double coarsening = 4.0;
    /// Times that a method may find its factors at fault before it gives up.
    int most_retries = 50;

    // Pricing.

    /// The part of its true weight that a stored steepest-edge weight may be and the row still leave.
    double acceptable_weight = 0.25;
    double least_weight = 1e-4;
    /// Beyond this Devex weight of the primal method all begin anew at 1.
    double largest_weight = 1e7;

    // Degeneracy. A step of no length is one below the first; after so many more of those than of others, costs (dual)
    // or bounds (primal) are perturbed, by these parts of their size.

    double no_step = 1e-12;
    int dual_stall_limit = 20;
    int primal_stall_limit = 200;
    double cost_perturbation = 5e-7;
    double bound_perturbation = 1e-7;

    // Factors.

    /// Rows or columns that are searched for a pivot (Suhl and Suhl, 1990).
    int markowitz_search = 4;
    /// Factors grown by this factor with updates are made anew; so are those whose new pivot is smaller than the least,
    /// or is off by more than the other, relatively.
    std::size_t largest_growth = 3;
    double least_updated_pivot = 1e-11;
    double update_agreement = 1e-6;
    /// The part of a column's largest coefficient that a pivot of the triangular basis needs.
    double stable_share = 0.01;

    // Sparsity (Hall and McKinnon, 2005). Shares of nonzeros.

    /// Below both, where the nonzeros will be is found first.
    double sparse_input = 0.05;
    double sparse_result = 0.1;
    /// How much of the densities before the last one an expected density remembers; and what is assumed of a result
    /// that was computed without a list, so that another look is taken some day.
    double density_memory = 0.9;
    double density_doubt = 0.9;
    /// Above the first, a pivot row is computed by columns; above the second, by a sweep over all rows of the inverse.
    double by_columns = 0.4;
    double by_sweep = 0.05;

    // Attempts: after one whose answer does not stand its check, another with factors that are made more often, then
    // with looser tolerances and firmer pivots, at last without scaling.

    int attempts = 4;
    int updates_when_careful = 20;
    double looser = 10.0;
    int attempt_with_firm_pivots = 2;
    double firm_threshold = 0.5;
    int attempt_without_scaling = 3;
    /// Of one attempt: changes from one method to the other. Of all: iterations, which cycling alone reaches.
    int rounds = 5;
    std::size_t least_iteration_limit = 50'000;
    std::size_t iterations_per_variable = 50;
    /// Iterations between two looks at the clock; and by how much of the objective it must rise until the next proof
    /// of a cutoff is tried.
    std::size_t between_looks_at_the_clock = 16;
    double cutoff_caution = 1e-4;

    /// The range that phase one gives a column without bounds, where others have 1.
    double box_of_free = 1000.0;
    /// A matrix whose coefficients all lie between is not scaled.
    double well_scaled_low = 0.2;
    double well_scaled_high = 5.0;
};

inline constexpr simplex_parameters parameters{};

} // namespace optpipe::milp::lp
