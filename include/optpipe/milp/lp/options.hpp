#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>

namespace optpipe::milp {

/// Which of the rows that are out of bounds leaves the basis.
enum class pricing_rule : unsigned char { steepest_edge, devex, dantzig };

struct simplex_options {
    pricing_rule pricing = pricing_rule::steepest_edge;
    bool scaling = true;
    /// Starts from a triangular basis without the slacks of equality rows, rather than from all slacks.
    bool crash = false;
    /// How far a value may lie outside its bounds, and a reduced cost on the wrong side of 0, in scaled terms.
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    /// The same for what is claimed in the end, in terms of the original program.
    double accepted_violation = 1e-7;
    /// Exchanges of the basis between two factorizations.
    int updates = 100;
    std::uint64_t seed = 1;
};

struct simplex_limits {
    std::size_t iterations = std::numeric_limits<std::size_t>::max();
    /// Solving ends as soon as the objective is proven to be at least this.
    double cutoff = std::numeric_limits<double>::infinity();
    /// Bytes of the working basis with its factors, beyond which solving ends.
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
    /// Nothing is known: what was found did not stand the final check.
    numerical_trouble,
};

} // namespace optpipe::milp
