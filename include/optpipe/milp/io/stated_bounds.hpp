#pragma once

#include "optpipe/milp/expression.hpp"

namespace optpipe::milp::detail {

/// The bounds that a file states for a column. A bound may be stated again only with the same value.
struct stated_bounds {
    double lower = 0.0;
    double upper = infinity;
    bool has_lower = false;
    bool has_upper = false;

    [[nodiscard]] bool is_stated() const { return has_lower || has_upper; }

    /// Returns false if the lower bound had another value before.
    [[nodiscard]] bool set_lower(double value) {
        if (has_lower) return lower == value;
        lower = value;
        return has_lower = true;
    }
    [[nodiscard]] bool set_upper(double value) {
        if (has_upper) return upper == value;
        upper = value;
        return has_upper = true;
    }

    /// Whether the lower bound is +infinity or the upper bound is -infinity.
    [[nodiscard]] bool are_misplaced() const { return lower == infinity || upper == -infinity; }
};

} // namespace optpipe::milp::detail
