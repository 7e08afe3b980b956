#pragma once

#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/tableau.hpp"

#include <cmath>
#include <cstddef>

namespace optpipe::milp::lp {

/// Whether a nonbasic variable's reduced cost has the wrong sign, and no flip helps.
[[nodiscard]] inline bool needs_phase_one(const tableau& t, double tolerance) {
    for (int j = 0; j < t.program.variables(); ++j) {
        const bool boxed = std::isfinite(t.lower[at(j)]) && std::isfinite(t.upper[at(j)]);
        if (!boxed && t.attraction(j, tolerance) > 0.0) return true;
    }
    return false;
}

/// Sets the bounds of phase one's subproblem (Koberstein, 2005): infinite bounds become finite, and finite bounds
/// become 0. Phase one's optimum is 0 if and only if its basis is dual feasible.
inline void set_phase_one_bounds(tableau& t) {
    for (int j = 0; j < t.program.variables(); ++j) {
        const bool has_lower = std::isfinite(t.program.lower[at(j)]);
        const bool has_upper = std::isfinite(t.program.upper[at(j)]);
        const double box = has_lower || has_upper ? 1.0 : parameters.box_of_free;
        t.lower[at(j)] = has_lower ? 0.0 : -box;
        t.upper[at(j)] = has_upper ? 0.0 : box;
        t.settle(j);
    }
}

} // namespace optpipe::milp::lp
