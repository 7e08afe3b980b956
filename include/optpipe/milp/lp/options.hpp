#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>

namespace optpipe::milp {

struct simplex_options {
    bool scaling = true;
    /// Number of basis exchanges between two factorizations.
    int updates = 100;
    std::uint64_t seed = 1;
};

struct simplex_limits {
    std::size_t iterations = std::numeric_limits<std::size_t>::max();
    /// Solving ends once the objective is proven to be at least this value.
    double cutoff = std::numeric_limits<double>::infinity();
    /// Limit in bytes of the working basis with its factors. Solving ends if this memory exceeds the limit.
    std::size_t memory = std::numeric_limits<std::size_t>::max();
    std::stop_token stop{};
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

enum class lp_status : unsigned char {
    optimal,
    infeasible,
    unbounded,
    /// The objective is proven to be at least the cutoff.
    cutoff,
    iteration_limit,
    stopped,
    /// No result is known, because every result failed the final check.
    numerical_trouble,
};

} // namespace optpipe::milp
