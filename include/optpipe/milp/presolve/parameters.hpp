#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>

namespace optpipe::milp::presolving {

/// Limits of the presolve rules. Not tuned. Work is the number of examined terms. A few million terms take some
/// hundredths of a second.
struct presolve_parameters {
    /// Least reduction of a continuous column's range, as a share (0 to 1). With no limit, two rows could tighten each
    /// other's columns forever by shrinking amounts.
    double least_gain = 0.02;
    /// Larger bounds aren't derived, because they scale a relaxation badly. A given bound above this magnitude becomes
    /// a row.
    double largest_bound = 1e7;

    /// Least reduction of a coefficient, as a share (0 to 1) of the coefficient. Changes by probing need a larger
    /// share, because all rules then examine the row again.
    double least_change = 1e-6;
    double least_change_behind_binary = 1e-3;

    /// Limits for eliminating columns. A pivot must be at least a share (0 to 1) of the largest coefficient. The share
    /// is `least_pivot` if the pivot's row is added to other rows, and otherwise `least_singleton_pivot`. The
    /// coefficients of an equation of two columns differ at most by the factor `largest_ratio`.
    double least_singleton_pivot = 1e-3;
    double least_pivot = 1e-2;
    double largest_ratio = 1e3;
    /// Limits |constant| / (magnitude of x's bounds) for a substitution x = constant + ... With a ratio of 1e4, 4 of 16
    /// digits are lost.
    double largest_cancellation = 1e4;
    /// Limits for elimination: terms of the row, terms of the column, and new nonzeros. New nonzeros make each solve of
    /// the relaxation slower.
    std::size_t longest_row = 100;
    std::size_t longest_column = 6;
    std::ptrdiff_t most_fill = 4;
    /// Longest column (in rows) that an equation of two columns may eliminate. An elimination by an equation of two
    /// columns makes no row longer.
    std::size_t longest_doubleton_column = 500;

    /// Presolve treats the coefficients of a row in integer variables as multiples of a unit. Rows in which a multiple
    /// exceeds this number are skipped.
    double largest_multiple = 1e6;
    /// Work limit for finding the values that the sum of an equation in integer variables can take. Work is the number
    /// of residues times the number of terms.
    std::int64_t residue_work = 1'000'000;
    /// Share (0 to 1) of the row tolerance that may be lost by treating rows as multiples.
    double parallel_share = 1e-3;
    /// Largest change of a row when a column near its bound is fixed there.
    double negligible_noise = 1e-9;

    /// The limits for dominated columns are the work per call and the length of the longest row. The limits for cliques
    /// are the work per call and the size of the largest clique.
    std::size_t domination_work = 2'000'000;
    std::size_t longest_domination_row = 200;
    std::size_t clique_work = 10'000'000;
    std::size_t largest_clique = 100;
    /// Work limits of all probing in one call, and of one binary.
    std::size_t probing_work = 20'000'000;
    std::size_t propagation_work = 20'000;
    /// Each row or column is compared with at most this number of earlier ones with the same hash.
    std::size_t most_compared = 8;
};

inline constexpr presolve_parameters parameters{};

} // namespace optpipe::milp::presolving
