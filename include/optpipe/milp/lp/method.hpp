#pragma once

#include "optpipe/milp/lp/options.hpp"

namespace optpipe::milp::lp {

/// Why a simplex method stopped.
enum class method_end : unsigned char {
    /// The basis is primal and dual feasible for the tableau's working bounds and costs.
    optimal,
    /// A row proves infeasibility (dual method), or a direction proves unboundedness (primal method).
    ray,
    /// The caller's `Interrupt` returned true.
    interrupted,
    trouble,
};

/// How careful the methods are. If a result fails its check, the next attempt is more careful.
struct method_settings {
    pricing_rule pricing = pricing_rule::steepest_edge;
    double primal_tolerance = 1e-9;
    double dual_tolerance = 1e-9;
    int updates = 100;
    bool perturb = true;
    /// The least violation that proves infeasibility; see `verify_infeasible`.
    double least_proof = 1e-9;
};

} // namespace optpipe::milp::lp
