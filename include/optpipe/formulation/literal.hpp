#pragma once

#include "optpipe/milp/model.hpp"

namespace optpipe::formulation {

/// A constant, a binary variable, or the negation of a binary variable. The value of a literal is `constant +
/// coefficient · column`.
struct literal {
    double constant = 0.0;
    double coefficient = 0.0;
    milp::variable column{};

    [[nodiscard]] static constexpr literal always() { return {1.0, 0.0, {}}; }
    [[nodiscard]] static constexpr literal never() { return {}; }
    [[nodiscard]] static constexpr literal of(milp::variable x) { return {0.0, 1.0, x}; }

    [[nodiscard]] constexpr bool is_constant() const { return coefficient == 0.0; }
    [[nodiscard]] constexpr bool is_always() const { return is_constant() && constant > 0.5; }
    [[nodiscard]] constexpr bool is_never() const { return is_constant() && constant < 0.5; }
    [[nodiscard]] constexpr literal negation() const { return {1.0 - constant, -coefficient, column}; }
    friend constexpr bool operator==(const literal&, const literal&) = default;
};

} // namespace optpipe::formulation
