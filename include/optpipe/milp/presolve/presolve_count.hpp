#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe::milp {

/// What one presolve method did.
struct presolve_count {
    std::string_view method;
    std::size_t applied = 0; ///< proposals
    std::size_t rows = 0;    ///< that went
    std::size_t columns = 0;
};

} // namespace optpipe::milp
