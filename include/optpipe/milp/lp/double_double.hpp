#pragma once

#include "optpipe/core/standard.hpp"

#include <cmath>

namespace optpipe::milp::lp {

/// The unevaluated sum of two doubles, with about twice the digits of one (Dekker, 1971). `high` is the sum, rounded to
/// a double.
struct double_double {
    double high = 0.0;
    double low = 0.0;

    /// a + b without error
    [[nodiscard]] static double_double sum(double a, double b) {
        const double high = a + b;
        const double other = high - a;
        return {high, (a - (high - other)) + (b - other)};
    }
    /// a · b without error, unless the result under- or overflows
    [[nodiscard]] static double_double product(double a, double b) {
        const double high = a * b;
        return {high, std::fma(a, b, -high)};
    }

    friend double_double operator+(double_double a, double_double b) {
        const auto highs = sum(a.high, b.high), lows = sum(a.low, b.low);
        const auto rough = sum(highs.high, highs.low + lows.high);
        return sum(rough.high, rough.low + lows.low);
    }
    friend double_double operator*(double factor, double_double b) {
        const auto rough = product(factor, b.high);
        return sum(rough.high, rough.low + factor * b.low);
    }
    double_double& operator+=(double_double other) { return *this = *this + other; }
};

} // namespace optpipe::milp::lp
