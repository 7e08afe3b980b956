#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>

namespace optpipe::milp::presolving {

/// Limits of the presolve rules. Not tuned. Work is counted in examined terms; a few million take some hundredths of a
/// second.
struct presolve_parameters {
    /// A better bound of a continuous column with a finite range must reduce that range by at least this share (0 to
    /// 1). Without this share, two rows could tighten each other's columns forever, by less each time.
    double least_gain = 0.02;
    /// Larger bounds (in magnitude) aren't derived: they tell a relaxation nothing and scale it badly. A given bound
    /// larger than this becomes a row.
    double largest_bound = 1e7;

    /// Tightening must reduce a coefficient by at least this share of it (0 to 1). The share is larger if probing finds
    /// the change, because every such change makes all rules examine the row again.
    double least_change = 1e-6;
    double least_change_behind_binary = 1e-3;

    /// Limits for eliminating columns. A pivot is at least this share (0 to 1) of the largest coefficient:
    /// `least_singleton_pivot` if its row stays, and `least_pivot` if its row is added to others. The coefficients of
    /// an equation of two columns differ at most by the factor `largest_ratio`.
    double least_singleton_pivot = 1e-3;
    double least_pivot = 1e-2;
    double largest_ratio = 1e3;
    /// Largest ratio of the constant in x = constant + ... to the magnitude of x's bounds; at this ratio, 4 of 16
    /// digits are lost.
    double largest_cancellation = 1e4;
    /// Limits for elimination: terms of the row, terms of the column, and new nonzeros. The relaxation is solved many
    /// times, and eliminating a column saves less than fill costs.
    std::size_t longest_row = 100;
    std::size_t longest_column = 6;
    std::ptrdiff_t most_fill = 4;
    /// Longest column (in rows) that an equation of two columns eliminates; such an elimination makes no row longer.
    std::size_t longest_doubleton_column = 500;

    /// Rows of integers are skipped if a coefficient exceeds this multiple of the unit.
    double largest_multiple = 1e6;
    /// Limit of the work, in residues times terms, for finding the sums that an equation of integers can have.
    std::int64_t residue_work = 1'000'000;
    /// Share (0 to 1) of the row tolerance that may be lost by treating a row as a multiple of another.
    double parallel_share = 1e-3;
    /// A column is fixed at a bound near its value if that causes at most this error in each of its rows.
    double negligible_noise = 1e-9;

    /// Work per call, and longest row, for dominated columns; work per call, and largest clique, for cliques.
    std::size_t domination_work = 2'000'000;
    std::size_t longest_domination_row = 200;
    std::size_t clique_work = 10'000'000;
    std::size_t largest_clique = 100;
    /// Limits of work: of all probing in one call, and of propagating one binary.
    std::size_t probing_work = 20'000'000;
    std::size_t propagation_work = 20'000;
    /// Each row or column is compared with at most this number of earlier rows or columns with the same hash.
    std::size_t most_compared = 8;
};

inline constexpr presolve_parameters parameters{};

} // namespace optpipe::milp::presolving
