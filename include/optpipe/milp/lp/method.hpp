#pragma once

#include "optpipe/milp/lp/parameters.hpp"

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
    double primal_tolerance = parameters.primal_tolerance;
    double dual_tolerance = parameters.dual_tolerance;
    int updates = 100;
    bool perturb = true;
    /// The least violation that proves infeasibility; see `verify_infeasible`.
    double least_proof = parameters.primal_tolerance;
};

} // namespace optpipe::milp::lp
