#pragma once

#include "optpipe/core/standard.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>

namespace optpipe::cp {

/// Time in ticks of the model, or memory in units of the model.
using ticks = std::int64_t;

/// A Boolean variable or its negation.
class literal {
public:
    constexpr literal() = default;
    constexpr literal(std::uint32_t variable, bool negated) : code_{2 * variable + (negated ? 1U : 0U)} {}
    [[nodiscard]] static constexpr literal from_code(std::uint32_t code) {
        literal l;
        l.code_ = code;
        return l;
    }

    [[nodiscard]] constexpr std::uint32_t code() const { return code_; }
    [[nodiscard]] constexpr std::uint32_t variable() const { return code_ >> 1U; }
    [[nodiscard]] constexpr bool negated() const { return (code_ & 1U) != 0; }
    constexpr literal operator!() const { return from_code(code_ ^ 1U); }
    friend constexpr auto operator<=>(literal, literal) = default;

private:
    std::uint32_t code_ = 0;
};

/// Variable 0 is true in every model.
inline constexpr literal always{0, false};
inline constexpr literal never{0, true};

/// The position of a task in its model.
using task_index = std::uint32_t;

/// A quantity that only grows along a branch: a task's earliest start, or minus its latest start.
using bound_index = std::uint32_t;
[[nodiscard]] constexpr bound_index earliest_of(task_index t) { return 2 * t; }
[[nodiscard]] constexpr bound_index latest_of(task_index t) { return 2 * t + 1; }
[[nodiscard]] constexpr task_index task_of(bound_index b) { return b >> 1U; }
[[nodiscard]] constexpr bound_index opposite(bound_index b) { return b ^ 1U; }

/// The fact that a literal is true, or that a bound is at least `value`.
struct fact {
    std::uint32_t code = 0;
    bool is_bound = false;
    ticks value = 0;

    [[nodiscard]] static constexpr fact of(literal l) { return {l.code(), false, 0}; }
    [[nodiscard]] static constexpr fact of(bound_index b, ticks value) { return {b, true, value}; }
    [[nodiscard]] constexpr literal as_literal() const { return literal::from_code(code); }
};

} // namespace optpipe::cp
