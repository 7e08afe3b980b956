#pragma once

#include "optpipe/core/standard.hpp"

#include <cmath>
#include <compare>
#include <limits>

namespace optpipe {

/// A number with a dimension, in the problem's unit (`time_unit`, `memory_unit`). Only sums, differences, multiples,
/// and ratios of equal dimensions compile.
template <class Tag> class quantity {
public:
    constexpr quantity() = default;
    constexpr explicit quantity(double value) : value_{value} {}

    [[nodiscard]] constexpr double value() const { return value_; }
    [[nodiscard]] static constexpr quantity unlimited() { return quantity{std::numeric_limits<double>::infinity()}; }
    [[nodiscard]] constexpr bool is_unlimited() const { return value_ == std::numeric_limits<double>::infinity(); }

    constexpr quantity& operator+=(quantity other) {
        value_ += other.value_;
        return *this;
    }
    constexpr quantity& operator-=(quantity other) {
        value_ -= other.value_;
        return *this;
    }
    friend constexpr quantity operator+(quantity a, quantity b) { return quantity{a.value_ + b.value_}; }
    friend constexpr quantity operator-(quantity a, quantity b) { return quantity{a.value_ - b.value_}; }
    friend constexpr quantity operator-(quantity a) { return quantity{-a.value_}; }
    friend constexpr quantity operator*(double factor, quantity a) { return quantity{factor * a.value_}; }
    friend constexpr quantity operator*(quantity a, double factor) { return quantity{factor * a.value_}; }
    friend constexpr quantity operator/(quantity a, double divisor) { return quantity{a.value_ / divisor}; }
    friend constexpr double operator/(quantity a, quantity b) { return a.value_ / b.value_; }
    friend constexpr auto operator<=>(quantity, quantity) = default;

private:
    double value_ = 0.0;
};

/// A length of time, or a point in time counted from the start of the step.
using duration = quantity<struct time_tag>;
/// An amount of memory.
using memory_size = quantity<struct memory_tag>;

/// Literals for problems in milliseconds and gigabytes (10^9 bytes), the units of this library's analytic models.
namespace literals {
constexpr duration operator""_us(long double v) { return duration{static_cast<double>(v) * 1e-3}; }
constexpr duration operator""_us(unsigned long long v) { return duration{static_cast<double>(v) * 1e-3}; }
constexpr duration operator""_ms(long double v) { return duration{static_cast<double>(v)}; }
constexpr duration operator""_ms(unsigned long long v) { return duration{static_cast<double>(v)}; }
constexpr memory_size operator""_mb(long double v) { return memory_size{static_cast<double>(v) * 1e-3}; }
constexpr memory_size operator""_mb(unsigned long long v) { return memory_size{static_cast<double>(v) * 1e-3}; }
constexpr memory_size operator""_gb(long double v) { return memory_size{static_cast<double>(v)}; }
constexpr memory_size operator""_gb(unsigned long long v) { return memory_size{static_cast<double>(v)}; }
} // namespace literals

} // namespace optpipe
