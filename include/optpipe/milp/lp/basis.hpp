#pragma once

#include "optpipe/core/standard.hpp"

#include <vector>

namespace optpipe::milp {

/// The status of a column or of a row's activity: in the basis, at one of its bounds, or at 0 if it has no bounds.
enum class basis_status : unsigned char { basic, at_lower, at_upper, free_at_zero };

/// One status per column and per row. The number of basic statuses equals the number of rows.
struct basis {
    std::vector<basis_status> columns;
    std::vector<basis_status> rows;

    friend bool operator==(const basis&, const basis&) = default;
};

} // namespace optpipe::milp
