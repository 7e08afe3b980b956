#pragma once

#include "optpipe/milp/feasibility.hpp"

#include <cmath>

namespace optpipe::milp::search {

/// Tolerances of the search; `feasibility` defines what counts as feasible. Not tuned.
struct numbers {
    /// Largest violation of a row or bound, relative to its size (at least 1); and of integrality, absolute.
    double feasibility = 1e-6;
    double integrality = 1e-6;
    /// Smaller coefficients count as 0.
    double zero = 1e-9;
    /// Error of the sides of rows, relative to their size (at least 1), because users compute them. A contradiction
    /// within it isn't infeasible. Errors of presolve's own arithmetic are known row by row.
    double noise = 1e-9;
    /// A bound of a continuous column moves only by more than this share (0 to 1) of the distance to the other bound.
    double least_move = 1e-4;
    /// Larger bounds (in magnitude) aren't derived: rows may creep towards them forever.
    double huge = 1e10;

    [[nodiscard]] milp::feasibility rule() const { return {{feasibility}}; }
    [[nodiscard]] double slack(double scale) const { return feasibility * milp::feasibility::scale(scale); }
    [[nodiscard]] double noise_at(double side) const {
        return std::isfinite(side) ? noise * milp::feasibility::scale(side) : 0.0;
    }
};

} // namespace optpipe::milp::search
