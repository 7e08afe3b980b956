#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::lp {

/// Parameters of the simplex methods. The parameters trade accuracy against the number of iterations. The values are
/// close to those in the cited papers, and aren't tuned. Magnitudes are in scaled terms.
struct simplex_parameters {
    // Tolerances.

    /// Largest excess over a bound, and largest reduced cost of the wrong sign.
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    /// The largest violation of a bound or of optimality in a reported result, measured in the original program.
    double accepted_violation = 1e-7;

    // Pivots.

    /// The dual method's least pivot after few, some, and many updates of the factors. Each update adds to the factors'
    /// error.
    int few_updates = 10;
    int many_updates = 20;
    double least_pivot_of_few = 1e-9;
    double least_pivot_of_some = 3e-8;
    double least_pivot_of_many = 1e-7;
    /// The primal method's least pivot with fresh factors, and with updated factors.
    double least_pivot_of_fresh = 1e-9;
    double least_pivot_of_updated = 1e-8;
    /// Pivots below `trusted_pivot` are trusted only with fresh factors. A pivot's values by row and by column may
    /// differ by at most `pivot_agreement` · max(1, pivot).
    double trusted_pivot = 1e-7;
    double pivot_agreement = 1e-7;
    /// The ratio test takes the last group whose best pivot reaches this share (0 to 1) of the largest pivot. A later
    /// group gives a longer step.
    double share_of_largest_pivot = 0.1;
    /// Factor between the reaches of consecutive groups of breakpoints. The next group forms only if all variables of
    /// the current group flip.
    double coarsening = 4.0;
    /// Number of failures of the factors before a method gives up.
    int most_retries = 50;

    // Pricing.

    /// A row leaves only if its stored weight is at least this share (0 to 1) of the true weight. Stored weights are at
    /// least `least_weight`.
    double acceptable_weight = 0.25;
    double least_weight = 1e-4;
    /// Limit of the Devex weights of the primal method. If a weight exceeds the limit, all weights are reset to 1.
    double largest_weight = 1e7;

    // Parameters for degeneracy. A step shorter than `no_step` counts as degenerate. Costs (dual) or bounds (primal)
    // are perturbed once degenerate steps exceed the others by the stall limit. A perturbation is a share of the size
    // of the perturbed cost or bound.

    double no_step = 1e-12;
    int dual_stall_limit = 20;
    int primal_stall_limit = 200;
    double cost_perturbation = 5e-7;
    double bound_perturbation = 1e-7;

    // Factors.

    /// Number of rows and columns searched for a pivot (Suhl and Suhl, 1990).
    int markowitz_search = 4;
    /// The basis is factorized anew if the factors grow by `largest_growth`. A pivot below `least_updated_pivot`, or
    /// with a relative error above `update_agreement`, also causes a new factorization.
    std::size_t largest_growth = 3;
    double least_updated_pivot = 1e-11;
    double update_agreement = 1e-6;

    // Parameters for sparsity (Hall and McKinnon, 2005). Densities are shares of nonzeros (0 to 1).

    /// A symbolic pass precedes a solve with densities below `sparse_input` (right-hand side) and `sparse_result`
    /// (result).
    double sparse_input = 0.05;
    double sparse_result = 0.1;
    /// `density_memory` is the weight (0 to 1) of earlier densities in an expected density. Each solve without a list
    /// of nonzeros multiplies the expected density by `density_doubt`.
    double density_memory = 0.9;
    double density_doubt = 0.9;
    /// The density of the inverse's row selects one of three ways to compute the pivot row. If the density is above
    /// `by_columns`, the pivot row is computed by columns. With a density between `by_sweep` and `by_columns`, a sweep
    /// over rows is used. With a density below `by_sweep`, a list of nonzeros is used.
    double by_columns = 0.4;
    double by_sweep = 0.05;

    // Number of attempts. Later attempts factorize more often, then use looser tolerances, then no scaling.

    int attempts = 4;
    int updates_when_careful = 20;
    double looser = 10.0;
    int attempt_with_firm_pivots = 2;
    double firm_threshold = 0.5;
    int attempt_without_scaling = 3;
    /// Each attempt has a limit of rounds and a limit of iterations. A round runs the dual method and, if necessary,
    /// the primal method. The limit of iterations is a constant plus a number per column and row. An attempt reaches
    /// the iteration limit only if the method cycles.
    int rounds = 5;
    std::size_t least_iteration_limit = 50'000;
    std::size_t iterations_per_variable = 50;
    /// `between_looks_at_the_clock` is the number of iterations between two checks of the clock. After a failed cutoff
    /// proof, the next proof waits until the objective rises by `cutoff_caution` · (1 + |objective|).
    std::size_t between_looks_at_the_clock = 16;
    double cutoff_caution = 1e-4;

    /// Magnitude of phase one's bounds for a column without bounds. Phase one replaces a single infinite bound by ±1.
    double box_of_free = 1000.0;
    /// If all coefficients of a matrix lie between these two numbers, the matrix isn't scaled.
    double well_scaled_low = 0.2;
    double well_scaled_high = 5.0;
};

inline constexpr simplex_parameters parameters{};

} // namespace optpipe::milp::lp
