#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>

namespace optpipe::milp {

/// The rule that chooses the leaving row.
enum class pricing_rule : unsigned char { steepest_edge, devex, dantzig };

struct simplex_options {
    pricing_rule pricing = pricing_rule::steepest_edge;
    bool scaling = true;
    /// Whether to start from a triangular basis without the slacks of equality rows. If false, all slacks are basic at
    /// the start.
    bool crash = false;
    /// Largest excess over a bound, and largest reduced cost of the wrong sign, in scaled terms.
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    /// The largest violation of a bound or of optimality in a reported result, measured in the original program.
    double accepted_violation = 1e-7;
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
