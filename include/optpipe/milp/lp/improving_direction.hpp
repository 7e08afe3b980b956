#pragma once

#include "optpipe/milp/lp/certificate.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/options.hpp"
#include "optpipe/milp/lp/simplex.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace optpipe::milp {

namespace lp {

/// The program of all directions that no finite bound and no finite side stops. Each direction is scaled so that no
/// column moves by more than 1. The program thus has an optimum, however large the points of the given program are.
[[nodiscard]] inline linear_program program_of_directions(linear_program program) {
    const auto replace = [](std::vector<double>& bounds, double most) {
        for (double& b : bounds)
            b = std::isfinite(b) ? 0.0 : std::copysign(most, b);
    };
    constexpr double infinite = std::numeric_limits<double>::infinity();
    replace(program.column_lower, 1.0);
    replace(program.column_upper, 1.0);
    replace(program.row_lower, infinite);
    replace(program.row_upper, infinite);
    return program;
}

} // namespace lp

/// A direction that `verify_unbounded` accepts. The result is empty if none is found. If the program has a point, the
/// direction proves that the program is unbounded.
[[nodiscard]] inline std::optional<std::vector<double>> improving_direction(const linear_program& program,
                                                                            const simplex_options& options = {},
                                                                            const simplex_limits& limits = {}) {
    simplex directions{lp::program_of_directions(program), options};
    if (directions.solve(limits) != lp_status::optimal) return std::nullopt;
    const auto best = directions.primal();
    if (!verify_unbounded(program, best, options.dual_tolerance)) return std::nullopt;
    return std::vector<double>(best.begin(), best.end());
}

} // namespace optpipe::milp
