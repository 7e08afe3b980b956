#pragma once

#include "optpipe/core/standard.hpp"

#include <vector>

namespace optpipe::milp {

/// Whether a column, or the activity of a row, is in the basis, at one of its bounds, or, without bounds, at 0.
enum class basis_status : unsigned char { basic, at_lower, at_upper, free_at_zero };

/// One status per column and per row. The number of basic ones equals the number of rows.
struct basis {
    std::vector<basis_status> columns;
    std::vector<basis_status> rows;

    friend bool operator==(const basis&, const basis&) = default;
};

} // namespace optpipe::milp
