#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>

namespace optpipe::milp::search {

/// One bound of a column. `2 j` is the lower bound of column j, and `2 j + 1` is the negative of its upper bound.
/// Negated upper bounds only rise, like lower bounds.
using bound_index = std::uint32_t;

[[nodiscard]] constexpr bound_index lower_of(std::size_t column) { return static_cast<bound_index>(2 * column); }
[[nodiscard]] constexpr bound_index upper_of(std::size_t column) { return static_cast<bound_index>(2 * column + 1); }
[[nodiscard]] constexpr bound_index opposite(bound_index b) { return b ^ 1U; }
[[nodiscard]] constexpr std::size_t column_of(bound_index b) { return b >> 1U; }
[[nodiscard]] constexpr bool is_upper(bound_index b) { return (b & 1U) != 0; }

/// The statement "this bound is at least `value`": x >= value, or -x >= value.
struct literal {
    bound_index bound = 0;
    double value = 0.0;

    friend constexpr bool operator==(const literal&, const literal&) = default;
};

[[nodiscard]] constexpr literal at_least(std::size_t column, double value) { return {lower_of(column), value}; }
[[nodiscard]] constexpr literal at_most(std::size_t column, double value) { return {upper_of(column), -value}; }
/// The literal that holds exactly if `l` doesn't. Valid only for literals of integral columns.
[[nodiscard]] constexpr literal negation(literal l) { return {opposite(l.bound), 1.0 - l.value}; }
/// Whether a column with this value makes the literal true.
[[nodiscard]] constexpr bool holds_at(literal l, double value, double slack = 0.0) {
    return (is_upper(l.bound) ? -value : value) >= l.value - slack;
}

} // namespace optpipe::milp::search
