#pragma once

#include "optpipe/core/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace optpipe::milp {

/// The definition of feasibility for the checker, presolve, propagation, relaxations and conflict analysis.
///
/// A feasible point violates each bound and each row side by at most its `slack`. An integer variable may differ from
/// an integer by at most `integrality`. The bounds of integer variables have no slack, and neither has a row in integer
/// variables with integral coefficients. The checker applies this definition after rounding integer variables.
///
/// A model is infeasible if no point satisfies all bounds and rows within their slacks.
///
/// The search never loses a point that satisfies all bounds and rows exactly. A computed number has an error of up to
/// `noise`. A difference smaller than the noise neither tightens a bound nor proves infeasibility. A row's noise
/// includes the noise of the rows that it was derived from.
struct feasibility {
    optpipe::tolerance granted{};

    /// The magnitude of `value` for scaling a tolerance, at least 1.
    [[nodiscard]] static double scale(double value) { return std::max(1.0, std::abs(value)); }
    /// The slack is absolute, as in other solvers. For very large bounds, the slack is relative, because of rounding
    /// errors.
    [[nodiscard]] double slack(double bound) const {
        constexpr double share = 1e-8;
        return std::isfinite(bound) ? granted.at(scale(share * bound)) : 0.0;
    }
    [[nodiscard]] double integrality() const { return granted.at(1.0); }
    /// The distance by which a derived bound of an integer variable may be relaxed to an integer. Relaxing by this
    /// distance violates the row by at most its slack.
    [[nodiscard]] double grace(double slack_of_row, double coefficient) const {
        return std::min(integrality(), slack_of_row / std::abs(coefficient));
    }

    /// Rounds up a lower bound that may be too high by `off`.
    [[nodiscard]] static double rounded_up(double bound, double off) { return std::ceil(bound - off); }
    [[nodiscard]] static double rounded_down(double bound, double off) { return -rounded_up(-bound, off); }
    /// Rounds up a given lower bound, within the integrality tolerance.
    [[nodiscard]] double rounded_up(double bound) const { return rounded_up(bound, integrality()); }
    [[nodiscard]] double rounded_down(double bound) const { return rounded_down(bound, integrality()); }
    [[nodiscard]] bool is_above(double value, double lower) const { return value >= lower - slack(lower); }
    [[nodiscard]] bool is_below(double value, double upper) const { return value <= upper + slack(upper); }
    /// Whether the lower bound exceeds the upper bound by more than the slack.
    [[nodiscard]] bool cross(double lower, double upper) const { return lower > upper + slack(lower); }
};

/// Doubles hold integers, and sums of integers, exactly up to this magnitude.
inline constexpr double largest_exact_integer = 0x1p53;

[[nodiscard]] inline bool is_integral(double value) { return value == std::round(value); }

/// The distance from a value to the nearest multiple of `unit`.
[[nodiscard]] inline double distance_to_multiple(double value, double unit) {
    return std::abs(std::fma(-std::round(value / unit), unit, value));
}

/// The error of a row's activity if a coefficient is off by `off`. The column is between the given bounds. The error is
/// unlimited if a bound is infinite and the coefficient is off by more than a rounding error.
[[nodiscard]] inline double error_in_row(double coefficient, double off, double lower, double upper) {
    const bool is_rounding = off <= std::numeric_limits<double>::epsilon() * std::abs(coefficient);
    double size = 1.0;
    for (const double bound : {lower, upper})
        if (std::isfinite(bound) || !is_rounding) size = std::max(size, std::abs(bound));
    return off * size;
}

/// Rounding error of a sum whose largest summand has this magnitude.
[[nodiscard]] inline double noise_of_sum(double size) {
    constexpr double operations = 8.0; // effective number of operations: most terms are small, and errors partly cancel
    return operations * std::numeric_limits<double>::epsilon() * size;
}

/// A computed number, and the limit of its error.
struct rounded {
    double value = 0.0;
    double noise = 0.0;
};

/// a - b; 0 if the result is only a rounding error
[[nodiscard]] inline rounded difference(double a, double b) {
    constexpr double cancelled = 1e-13;
    const double result = a - b;
    if (!std::isfinite(result)) return {result, 0.0};
    if (std::abs(result) <= cancelled * std::max(std::abs(a), std::abs(b))) return {0.0, std::abs(result)};
    const double other = result - a;
    return {result, std::abs((a - (result - other)) - (b + other))};
}

/// a - factor · b
[[nodiscard]] inline rounded difference(double a, double factor, double b) {
    const double product = factor * b;
    const auto result = difference(a, product);
    if (!std::isfinite(result.value)) return result;
    return {result.value, result.noise + std::abs(std::fma(factor, b, -product))};
}

[[nodiscard]] inline rounded quotient(double a, double divisor) {
    const double result = a / divisor;
    if (!std::isfinite(result)) return {result, 0.0};
    return {result, std::abs(std::fma(result, divisor, -a) / divisor)};
}

} // namespace optpipe::milp
