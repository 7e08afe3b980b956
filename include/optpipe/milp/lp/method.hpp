#pragma once

#include "optpipe/milp/lp/options.hpp"

namespace optpipe::milp::lp {

/// Where a simplex method stopped.
enum class method_end : unsigned char {
    /// Primal and dual feasible for the bounds and costs that the tableau works with.
    optimal,
    /// No way on: the dual method has a row that proves infeasibility, the primal a direction of unboundedness.
    ray,
    /// The caller's test asked to end.
    interrupted,
    trouble,
};

/// How careful the methods are; driven up when a result did not stand its check.
struct method_settings {
    pricing_rule pricing = pricing_rule::steepest_edge;
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    int updates = 100;
    bool perturb = true;
    /// What a proof of infeasibility must exceed; see `verify_infeasible`.
    double least_proof = 1e-9;
};

} // namespace optpipe::milp::lp
