#pragma once

#include <algorithm>
#include <cmath>

namespace optpipe::milp::search {

/// What the search takes for equal.
struct numbers {
    /// How far a row or bound may be missed, times its size (at least 1).
    double feasibility = 1e-6;
    double integrality = 1e-6;
    /// Smaller coefficients count as 0.
    double zero = 1e-9;
    /// A bound of a continuous column moves only by more than this share of the distance to the other bound.
    double least_move = 1e-4;
    /// Bounds beyond that are not worth having: rows may creep towards them for ever.
    double huge = 1e10;

    [[nodiscard]] double slack(double scale) const { return feasibility * std::max(1.0, std::abs(scale)); }
};

} // namespace optpipe::milp::search
