#pragma once

#include "optpipe/core/standard.hpp"

#include <vector>

namespace optpipe::formulation {

/// A schedule in the terms of the model: when each operation starts, which stashes are offloaded, which backwards are
/// full.
struct plan_times {
    std::vector<double> start;            ///< per operation
    std::vector<unsigned char> offloaded; ///< per cell
    std::vector<unsigned char> is_full;   ///< per cell
};

} // namespace optpipe::formulation
