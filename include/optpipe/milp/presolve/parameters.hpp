#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::milp::presolving {

/// How far the rules of presolve go. All were chosen when the rules were written; no comparison with other values is on
/// record. Work is counted in terms that are looked at, of which a few million take some hundredths of a second.
struct presolve_parameters {
    /// Bounds of columns: of a finite range, the part that a better bound must take off a column that isn't an integer.
    /// Two rows can tighten each other's columns for ever, by less each time.
    double least_gain = 0.02;
    /// A bound beyond this, where there was none, tells a relaxation nothing and scales it badly. One that was given is
    /// a row instead.
    double largest_bound = 1e7;

    /// Coefficients: the least part that tightening must take off one; more where probing finds it, after which a row
    /// is looked at by all rules again.
    double least_change = 1e-6;
    double least_change_behind_binary = 1e-3;

    /// Columns that an equation takes away. A pivot is at least these parts of the largest coefficient, where its row
    /// stays (a singleton) and where it is added to others; a quotient of two is no larger or smaller than the last.
    double least_singleton_pivot = 1e-3;
    double least_pivot = 1e-2;
    double largest_ratio = 1e3;
    /// What its value may be the difference of, in sizes of its own bounds: four of sixteen digits are lost.
    double largest_cancellation = 1e4;
    /// Longer rows and columns stay as they are, and so does what would add more nonzeros than these: the relaxation is
    /// solved many times, and a column saves less than fill costs.
    std::size_t longest_row = 100;
    std::size_t longest_column = 6;
    std::ptrdiff_t most_fill = 4;
    /// The same for an equation of two columns, which makes no row longer.
    std::size_t longest_doubleton_column = 500;

    /// Rows of integers whose coefficients are larger multiples of the least are left alone.
    double largest_multiple = 1e6;
    /// Of the tolerance of rows, the part that taking one for a multiple of another may cost.
    double parallel_share = 1e-3;
    /// What a column may be off by in any of its rows, for it to be fixed at a bound near its value.
    double negligible_noise = 1e-9;

    /// Work of one call: dominated columns, rows of which are no longer than this; cliques, which grow no larger.
    std::size_t domination_work = 2'000'000;
    std::size_t longest_domination_row = 200;
    std::size_t clique_work = 10'000'000;
    std::size_t largest_clique = 100;
    /// Of all probing in one call, and of what follows from one binary.
    std::size_t probing_work = 20'000'000;
    std::size_t propagation_work = 20'000;
    /// Rows or columns with the same hash: each is compared with so many before it.
    std::size_t most_compared = 8;
};

inline constexpr presolve_parameters parameters{};

} // namespace optpipe::milp::presolving
