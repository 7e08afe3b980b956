#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/milp/feasibility.hpp"
#include "optpipe/milp/presolve/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace optpipe::milp::presolving {

/// Tolerances of presolve for comparing computed numbers.
struct margins {
    milp::feasibility feasible{}; ///< violations of bounds beyond this prove infeasibility
    tolerance equality{1e-12};    ///< the largest difference that counts as rounding

    [[nodiscard]] static double scale(double a) { return milp::feasibility::scale(a); }
    [[nodiscard]] double excess_at(double a) const { return feasible.slack(a); }
    /// Rounding error of a bound that has just been computed. The estimate is small, because coefficients magnify a
    /// column's error in its rows.
    [[nodiscard]] static double noise_at(double a) {
        constexpr double operations = 4.0; // number of rounded operations per bound
        return operations * std::numeric_limits<double>::epsilon() * scale(a);
    }
    /// Whether to use a new bound that reduces the range of a column by `gain`.
    [[nodiscard]] bool is_worth(bool is_integer, double gain, double range, double bound) const {
        if (!(gain > excess_at(bound)) || std::abs(bound) > parameters.largest_bound) return false;
        return is_integer || !std::isfinite(range) || gain > parameters.least_gain * range;
    }
    /// Whether a number is integral up to rounding. The integrality tolerance also applies, because large numbers have
    /// large rounding errors.
    [[nodiscard]] bool is_integral(double a) const {
        return std::abs(a - std::round(a)) <= std::min(equality.at(scale(a)), feasible.integrality());
    }
    /// Whether rows may be treated as multiples of something if this error of their activity is ignored.
    [[nodiscard]] bool is_negligible(double error) const {
        return error <= parameters.parallel_share * feasible.integrality();
    }
    /// The rounded lower bound of an integer variable. The given bound may be too tight by `off`.
    [[nodiscard]] static double rounded_up(double a, double off) { return feasibility::rounded_up(a, off); }
    [[nodiscard]] static double rounded_down(double a, double off) { return feasibility::rounded_down(a, off); }
    /// The amount by which an integer variable's bound from a row may be too tight. `noise` is the bound's error.
    [[nodiscard]] double grace(double lower, double upper, double coefficient, double noise) const {
        return std::max(noise, feasible.grace(std::max(feasible.slack(lower), feasible.slack(upper)), coefficient));
    }
    /// Whether an upper bound may just stand for "no limit".
    [[nodiscard]] static bool is_far_above(double upper, double lower) {
        return std::isfinite(upper) && upper > parameters.largest_bound * std::max(1.0, lower);
    }
    [[nodiscard]] static bool is_far_below(double lower, double upper) { return is_far_above(-lower, -upper); }
};

} // namespace optpipe::milp::presolving
