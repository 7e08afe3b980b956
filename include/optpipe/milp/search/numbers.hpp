#pragma once

#include "optpipe/milp/feasibility.hpp"

#include <cmath>

namespace optpipe::milp::search {

/// Tolerances of the search; `feasibility` defines what counts as feasible. Not tuned.
struct numbers {
    /// The allowed violation of a row or bound (`feasibility`).
    double feasibility = 1e-6;
    double integrality = 1e-6;
    /// Coefficients below this value count as 0.
    double zero = 1e-9;
    /// The side of a row may have an error of `noise`, because users compute sides. The error of a large row side may
    /// be `noise` · `noise_share` times the side's magnitude. A contradiction by no more than this error doesn't prove
    /// infeasibility. Errors of presolve's arithmetic are known row by row, and aren't included in `noise`.
    double noise = 1e-9;
    double noise_share = 1e-3;
    /// Least gain of a continuous column's bound, as a share (0 to 1) of the column's range.
    double least_move = 1e-4;
    /// Larger bounds aren't derived, because rows could raise bounds in small steps forever.
    double huge = 1e10;

    [[nodiscard]] milp::feasibility rule() const { return {{feasibility}}; }
    [[nodiscard]] double slack(double side) const { return rule().slack(side); }
    /// Objectives that differ by less than this slack count as equal. The slack is relative, like the gap.
    [[nodiscard]] double objective_slack(double objective) const {
        return feasibility * milp::feasibility::scale(objective);
    }
    [[nodiscard]] double noise_at(double side) const {
        return std::isfinite(side) ? noise * milp::feasibility::scale(noise_share * side) : 0.0;
    }
};

} // namespace optpipe::milp::search
