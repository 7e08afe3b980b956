#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/feasibility.hpp"
#include "optpipe/milp/lp/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::lp {

/// A primal and a dual point of a linear program, in the program's own (unscaled) terms.
struct solution {
    std::vector<double> primal;
    std::vector<double> row_activity;
    std::vector<double> duals;
    std::vector<double> reduced_costs;
    double objective = 0.0;

    [[nodiscard]] std::size_t bytes() const {
        return bytes_of(primal, row_activity, duals, reduced_costs, activity_sizes, reduced_sizes);
    }
    /// Sum of the magnitudes of the terms, per activity and reduced cost. The rounding error is proportional to this
    /// sum.
    std::vector<double> activity_sizes;
    std::vector<double> reduced_sizes;

    /// The largest error of a row's activity that counts as rounding.
    [[nodiscard]] double activity_error(std::size_t i) const {
        constexpr double rounding = 1e-12; // as a share of the magnitudes of the terms
        return rounding * activity_sizes[i];
    }
};

/// Computes activities, reduced costs and the objective from `primal` and `duals`.
inline void complete(const linear_program& program, solution& s) {
    s.row_activity.assign(program.rows(), 0.0);
    s.activity_sizes.assign(program.rows(), 0.0);
    s.reduced_costs.resize(program.columns());
    s.reduced_sizes.resize(program.columns());
    s.objective = 0.0;
    for (std::size_t j = 0; j < program.columns(); ++j) {
        double reduced = program.cost[j];
        double size = std::abs(reduced);
        const double x = s.primal[j];
        for (Eigen::SparseMatrix<double>::InnerIterator e(program.matrix, static_cast<Eigen::Index>(j)); e; ++e) {
            const auto i = static_cast<std::size_t>(e.row());
            const double priced = s.duals[i] * e.value();
            const double active = e.value() * x;
            reduced -= priced;
            size += std::abs(priced);
            s.row_activity[i] += active;
            s.activity_sizes[i] += std::abs(active);
        }
        s.reduced_costs[j] = reduced;
        s.reduced_sizes[j] = size;
        s.objective += program.cost[j] * x;
    }
}

[[nodiscard]] inline bool is_within(double v, double lower, double upper, double tolerance) {
    const feasibility feasible{{tolerance}};
    return feasible.is_above(v, lower) && feasible.is_below(v, upper);
}

/// Whether all values are finite. A product may overflow, and the sums that follow are infinite or NaN then.
[[nodiscard]] inline bool is_finite(const solution& s) {
    for (const auto* values : {&s.primal, &s.duals, &s.activity_sizes, &s.reduced_sizes})
        for (const double v : *values)
            if (!std::isfinite(v)) return false;
    return true;
}

[[nodiscard]] inline bool is_primal_feasible(const linear_program& program, const solution& s, double tolerance) {
    if (!is_finite(s)) return false;
    for (std::size_t j = 0; j < program.columns(); ++j)
        if (!is_within(s.primal[j], program.column_lower[j], program.column_upper[j], tolerance)) return false;
    for (std::size_t i = 0; i < program.rows(); ++i) {
        const double slack = s.activity_error(i);
        if (!is_within(s.row_activity[i], program.row_lower[i] - slack, program.row_upper[i] + slack, tolerance))
            return false;
    }
    return true;
}

/// Whether the value `v`, known up to ± `error`, is near the bound that its reduced cost requires. Near means that a
/// move to the bound gains at most the tolerance.
[[nodiscard]] inline bool is_complementary(double reduced, double v, double error, double lower, double upper,
                                           double tolerance) {
    if (std::abs(reduced) <= tolerance) return true;
    const double bound = reduced > 0.0 ? lower : upper;
    const double distance = std::max(0.0, std::abs(v - bound) - error);
    return std::isfinite(bound) && std::abs(reduced) * distance <= tolerance * (1.0 + std::abs(reduced * bound));
}

[[nodiscard]] inline bool is_dual_feasible(const linear_program& program, const solution& s, double tolerance) {
    if (!is_finite(s)) return false;
    double largest = 0.0;
    for (const double y : s.duals)
        largest = std::max(largest, std::abs(y));
    for (std::size_t j = 0; j < program.columns(); ++j)
        if (!is_complementary(s.reduced_costs[j], s.primal[j], 0.0, program.column_lower[j], program.column_upper[j],
                              tolerance * (1.0 + s.reduced_sizes[j])))
            return false;
    for (std::size_t i = 0; i < program.rows(); ++i)
        if (!is_complementary(s.duals[i], s.row_activity[i], s.activity_error(i), program.row_lower[i],
                              program.row_upper[i], tolerance * (1.0 + largest)))
            return false;
    return true;
}

} // namespace optpipe::milp::lp
