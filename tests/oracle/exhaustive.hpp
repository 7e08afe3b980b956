#pragma once

#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <optional>

namespace oracle {

struct optimum {
    /// Empty: no schedule is valid, or the search stopped before it found one.
    std::optional<double> objective;
    optpipe::schedule schedule;
    /// false: the search stopped at its limit, and a better schedule may exist.
    bool proven = true;
    std::size_t nodes = 0;
};

/// The optimum of a tiny problem whose times are whole multiples of `grid`; at most 11 stages × microbatches.
optimum exhaustive_optimum(const optpipe::problem& p, double grid, std::size_t node_limit = 200'000);

} // namespace oracle
