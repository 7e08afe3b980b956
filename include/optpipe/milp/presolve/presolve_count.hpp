#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe::milp {

/// Counters of one presolve method's effect on the model.
struct presolve_count {
    std::string_view method;
    std::size_t applied = 0; ///< applied proposals
    std::size_t rows = 0;    ///< rows removed
    std::size_t columns = 0;
};

} // namespace optpipe::milp
