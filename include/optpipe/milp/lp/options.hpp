#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>

namespace optpipe::milp {

/// The rule that chooses which row leaves the basis among the rows that are out of bounds.
enum class pricing_rule : unsigned char { steepest_edge, devex, dantzig };

struct simplex_options {
    pricing_rule pricing = pricing_rule::steepest_edge;
    bool scaling = true;
    /// Whether to start from a triangular basis without the slacks of equality rows; otherwise all slacks are basic.
    bool crash = false;
    /// How far a value may lie beyond its bound, and how far a reduced cost may lie on the wrong side of 0, in scaled
    /// terms.
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    /// The largest violation of a bound, and of optimality, in a reported result, in terms of the original program.
    double accepted_violation = 1e-7;
    /// Number of basis exchanges between two factorizations.
    int updates = 100;
    std::uint64_t seed = 1;
};

struct simplex_limits {
    std::size_t iterations = std::numeric_limits<std::size_t>::max();
    /// Solving ends once the objective is proven to be at least this.
    double cutoff = std::numeric_limits<double>::infinity();
    /// Solving ends if the working basis with its factors takes more bytes than this.
    std::size_t memory = std::numeric_limits<std::size_t>::max();
    std::stop_token stop{};
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

enum class lp_status : unsigned char {
    optimal,
    infeasible,
    unbounded,
    /// The objective is at least the cutoff.
    cutoff,
    iteration_limit,
    stopped,
    /// Nothing is known, because every result failed the final check.
    numerical_trouble,
};

} // namespace optpipe::milp
