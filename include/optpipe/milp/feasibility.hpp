#pragma once

#include "optpipe/core/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace optpipe::milp {

/// The definition of feasibility for the checker, presolve, propagation, relaxations and conflict analysis:
/// - A point may violate a bound or a side of a row by its `slack`, and integrality by `integrality`. The checker
///   requires nothing else.
/// - A model is infeasible if it has no point even with each bound and side moved by its slack.
/// - No part of the search loses a point that violates nothing. A computed number may be off by its `noise`; it moves a
///   bound, or contradicts something, only by more than that. A row inherits the noise of the rows it was made from.
struct feasibility {
    optpipe::tolerance granted{};

    /// The magnitude of a number in comparisons, at least 1.
    [[nodiscard]] static double scale(double value) { return std::max(1.0, std::abs(value)); }
    [[nodiscard]] double slack(double bound) const { return std::isfinite(bound) ? granted.at(scale(bound)) : 0.0; }
    [[nodiscard]] double integrality() const { return granted.at(1.0); }

    /// A lower bound of an integer, from a computed bound that may be `noise` too high.
    [[nodiscard]] double rounded_up(double bound, double noise = 0.0) const {
        return std::ceil(bound - std::max(integrality(), noise));
    }
    [[nodiscard]] double rounded_down(double bound, double noise = 0.0) const { return -rounded_up(-bound, noise); }
    [[nodiscard]] bool is_above(double value, double lower) const { return value >= lower - slack(lower); }
    [[nodiscard]] bool is_below(double value, double upper) const { return value <= upper + slack(upper); }
    /// Whether no value is within both bounds.
    [[nodiscard]] bool cross(double lower, double upper) const { return lower > upper + slack(lower); }
};

/// Rounding error of a sum whose largest summand has this magnitude.
[[nodiscard]] inline double noise_of_sum(double size) {
    constexpr double operations = 8.0; // relevant operations: errors are random, and most terms small
    return operations * std::numeric_limits<double>::epsilon() * size;
}

/// A computed number, and the amount by which it may differ from the exact result.
struct rounded {
    double value = 0.0;
    double noise = 0.0;
};

/// a - b, or 0 if the result is only rounding.
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
