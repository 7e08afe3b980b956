#pragma once

#include "optpipe/core/index.hpp"

#include <limits>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// A column of a model.
using variable = index<struct variable_tag>;
/// A constraint of a model.
using row = index<struct row_tag>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

struct term {
    variable column;
    double coefficient = 0.0;

    friend bool operator==(const term&, const term&) = default;
};

/// A linear expression: a constant and a sum of terms. A variable may occur in several terms.
class expression {
public:
    expression() = default;
    expression(double constant) : constant_{constant} {} // NOLINT(google-explicit-constructor)
    expression(variable x) : terms_{{x, 1.0}} {}         // NOLINT(google-explicit-constructor)
    expression(std::vector<term> terms, double constant = 0.0) : terms_{std::move(terms)}, constant_{constant} {}

    [[nodiscard]] const std::vector<term>& terms() const { return terms_; }
    [[nodiscard]] double constant() const { return constant_; }

    expression& operator+=(const expression& other) {
        const auto count = other.terms_.size(); // `other` may be `*this`
        for (std::size_t i = 0; i < count; ++i)
            terms_.push_back(other.terms_[i]);
        constant_ += other.constant_;
        return *this;
    }
    expression& operator-=(const expression& other) { return *this += expression{other} *= -1.0; }
    expression& operator*=(double factor) {
        for (auto& t : terms_)
            t.coefficient *= factor;
        constant_ *= factor;
        return *this;
    }
    expression& operator/=(double divisor) {
        for (auto& t : terms_)
            t.coefficient /= divisor;
        constant_ /= divisor;
        return *this;
    }

private:
    std::vector<term> terms_;
    double constant_ = 0.0;
};

[[nodiscard]] inline expression operator+(expression a, const expression& b) { return std::move(a += b); }
[[nodiscard]] inline expression operator-(expression a, const expression& b) { return std::move(a -= b); }
[[nodiscard]] inline expression operator+(expression a) { return a; }
[[nodiscard]] inline expression operator-(expression a) { return std::move(a *= -1.0); }
[[nodiscard]] inline expression operator*(double factor, expression a) { return std::move(a *= factor); }
[[nodiscard]] inline expression operator*(expression a, double factor) { return std::move(a *= factor); }
[[nodiscard]] inline expression operator/(expression a, double divisor) { return std::move(a /= divisor); }

/// `lower <= body <= upper`, including the constant of the body.
struct constraint {
    expression body;
    double lower = -infinity;
    double upper = infinity;
};

/// Comparing two variables compares their indices. Write `x - y <= 0` for a constraint between two variables.
[[nodiscard]] inline constraint operator<=(expression a, double upper) { return {std::move(a), -infinity, upper}; }
[[nodiscard]] inline constraint operator>=(expression a, double lower) { return {std::move(a), lower, infinity}; }
[[nodiscard]] inline constraint operator==(expression a, double value) { return {std::move(a), value, value}; }
[[nodiscard]] inline constraint operator<=(double lower, expression a) { return std::move(a) >= lower; }
[[nodiscard]] inline constraint operator>=(double upper, expression a) { return std::move(a) <= upper; }
[[nodiscard]] inline constraint operator==(double value, expression a) { return std::move(a) == value; }
[[nodiscard]] inline constraint operator<=(expression a, const expression& b) { return std::move(a -= b) <= 0.0; }
[[nodiscard]] inline constraint operator>=(expression a, const expression& b) { return std::move(a -= b) >= 0.0; }
[[nodiscard]] inline constraint operator==(expression a, const expression& b) { return std::move(a -= b) == 0.0; }

/// Allows `1.0 <= x + y <= 3.0` and `3.0 >= x + y >= 1.0`.
[[nodiscard]] inline constraint operator<=(constraint c, double upper) {
    c.upper = upper < c.upper ? upper : c.upper;
    return c;
}
[[nodiscard]] inline constraint operator>=(constraint c, double lower) {
    c.lower = lower > c.lower ? lower : c.lower;
    return c;
}

} // namespace optpipe::milp
