#pragma once

#include "optpipe/core/standard.hpp"

#include <vector>

namespace optpipe::milp {

/// Status of a column or row activity: basic, at a bound, or at 0 without bounds.
enum class basis_status : unsigned char { basic, at_lower, at_upper, free_at_zero };

/// One status per column and per row. The number of basic statuses equals the number of rows.
struct basis {
    std::vector<basis_status> columns;
    std::vector<basis_status> rows;

    friend bool operator==(const basis&, const basis&) = default;
};

} // namespace optpipe::milp
