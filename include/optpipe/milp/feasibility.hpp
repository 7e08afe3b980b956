#pragma once

#include "optpipe/core/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace optpipe::milp {

/// What counts as feasible, for the checker, presolve, propagation, relaxations and conflict analysis alike:
/// - A bound of a variable and a side of a row may be missed by `slack` of it, integers by `integrality`. That is
///   all that the checker asks of a point.
/// - A model is infeasible if it has no point even where each bound and side is moved by its slack.
/// - No part of the search loses a point that violates nothing. What has been computed may be off by `noise`, and moves
///   no bound and contradicts nothing by less; a row passes on the noise of the rows that it was made from.
struct feasibility {
    optpipe::tolerance granted{};

    /// The size of a number that others are compared with, but never below 1.
    [[nodiscard]] static double scale(double value) { return std::max(1.0, std::abs(value)); }
    [[nodiscard]] double slack(double bound) const { return std::isfinite(bound) ? granted.at(scale(bound)) : 0.0; }
    [[nodiscard]] double integrality() const { return granted.at(1.0); }

    /// A lower bound of integers, if it may be `noise` too high.
    [[nodiscard]] double rounded_up(double bound, double noise = 0.0) const {
        return std::ceil(bound - std::max(integrality(), noise));
    }
    [[nodiscard]] double rounded_down(double bound, double noise = 0.0) const { return -rounded_up(-bound, noise); }
    [[nodiscard]] bool is_above(double value, double lower) const { return value >= lower - slack(lower); }
    [[nodiscard]] bool is_below(double value, double upper) const { return value <= upper + slack(upper); }
    /// Whether no value is within both bounds.
    [[nodiscard]] bool cross(double lower, double upper) const { return lower > upper + slack(lower); }
};

/// What a sum may be off by, if the largest number in it is of this size.
[[nodiscard]] inline double noise_of_sum(double size) {
    constexpr double operations = 8.0; // of those that matter: errors are random, and most terms small
    return operations * std::numeric_limits<double>::epsilon() * size;
}

/// A number that was computed, and by how much it may differ from the exact result.
struct rounded {
    double value = 0.0;
    double noise = 0.0;
};

/// a - b, and 0 where that is nothing but rounding.
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
