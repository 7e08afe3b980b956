#pragma once

#include "optpipe/milp/lp/linear_program.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp {

namespace lp {

/// The least value of coefficient · x over an interval. The coefficient is known up to ± `error`. An infinite bound
/// counts only if |coefficient| > `negligible`.
[[nodiscard]] inline double least_over(double coefficient, double error, double negligible, double lower,
                                       double upper) {
    const auto least = [&](double c) {
        const double bound = c > 0.0 ? lower : upper;
        return c == 0.0 || (!std::isfinite(bound) && std::abs(coefficient) <= negligible) ? 0.0 : c * bound;
    };
    return std::min(least(coefficient - error), least(coefficient + error));
}

/// Zeroes multipliers that are rounding errors or make the dual bound infinite. Changing multipliers is safe, because
/// all multipliers give valid bounds.
[[nodiscard]] inline std::vector<double> without_infinite_terms(const linear_program& program,
                                                                std::span<const double> multipliers) {
    constexpr double rounding = 1e-14;
    std::vector<double> kept(multipliers.begin(), multipliers.end());
    double most = 0.0;
    for (const double y : kept)
        most = std::max(most, std::abs(y));
    for (std::size_t i = 0; i < kept.size(); ++i)
        if (std::abs(kept[i]) <= rounding * most ||
            !std::isfinite(kept[i] > 0.0 ? program.row_lower[i] : program.row_upper[i]))
            kept[i] = 0.0;
    return kept;
}

/// How a dual bound treats rounding errors. Rounding errors either lower the bound, or count as 0 in reduced costs.
enum class rounding_errors : unsigned char { lower_the_bound, count_as_zero };

} // namespace lp

/// A lower bound on the program's optimum from arbitrary multipliers of its rows. The bound is the Lagrangian bound,
/// lowered by all rounding errors of its computation. The bound isn't safe in one case: a tiny reduced cost of an
/// unbounded column counts as 0. If `with_costs` is false, the costs are left out.
[[nodiscard]] inline double safe_dual_bound(const linear_program& program, std::span<const double> proposed,
                                            bool with_costs = true,
                                            lp::rounding_errors rounding = lp::rounding_errors::lower_the_bound) {
    const auto multipliers = lp::without_infinite_terms(program, proposed);
    constexpr double unit = std::numeric_limits<double>::epsilon();
    constexpr double negligible = 1e-9;
    const bool is_safe = rounding == lp::rounding_errors::lower_the_bound;
    double sum = 0.0;
    double sizes = 0.0;
    const auto take = [&](double v) {
        sum += v;
        sizes += std::abs(v);
    };
    for (std::size_t i = 0; i < program.rows(); ++i)
        if (multipliers[i] != 0.0)
            take(lp::least_over(multipliers[i], 0.0, 0.0, program.row_lower[i], program.row_upper[i]));
    double largest_cost = 0.0;
    if (with_costs)
        for (const double c : program.cost)
            largest_cost = std::max(largest_cost, std::abs(c));
    std::size_t terms = program.rows();
    for (std::size_t j = 0; j < program.columns(); ++j) {
        double reduced = with_costs ? program.cost[j] : 0.0;
        double size = std::abs(reduced);
        std::size_t length = 2;
        for (Eigen::SparseMatrix<double>::InnerIterator e(program.matrix, static_cast<Eigen::Index>(j)); e; ++e) {
            const double v = multipliers[static_cast<std::size_t>(e.row())] * e.value();
            reduced -= v;
            size += std::abs(v);
            ++length;
        }
        double error = static_cast<double>(length) * unit * size;
        if (!is_safe) {
            if (std::abs(reduced) <= error) reduced = 0.0;
            error = 0.0;
        }
        take(lp::least_over(reduced, error, negligible * std::max(size, largest_cost), program.column_lower[j],
                            program.column_upper[j]));
    }
    terms += program.columns();
    // A sum that overflowed proves nothing.
    if (!std::isfinite(sum)) return -std::numeric_limits<double>::infinity();
    return is_safe ? sum - static_cast<double>(terms) * unit * sizes : sum;
}

/// Whether the multipliers prove that no x satisfies all rows and bounds (Farkas' lemma). The proven violation must
/// exceed `tolerance` times the largest multiplier. Returns true if a lower bound is above its upper bound.
[[nodiscard]] inline bool verify_infeasible(const linear_program& program, std::span<const double> multipliers,
                                            double tolerance) {
    if (multipliers.size() != program.rows()) return false;
    if (program.has_crossed_bounds()) return true;
    double most = 0.0;
    for (const double y : multipliers)
        most = std::max(most, std::abs(y));
    return std::isfinite(most) && safe_dual_bound(program, multipliers, false) > tolerance * most;
}

/// Whether a move along `direction` lowers the cost without reaching a row side or bound. Row rates of at most
/// `tolerance` times their terms' size count as 0. A column's rate towards a finite bound counts as 0 up to `tolerance`
/// times the largest rate.
[[nodiscard]] inline bool verify_unbounded(const linear_program& program, std::span<const double> direction,
                                           double tolerance) {
    if (direction.size() != program.columns()) return false;
    double gain = 0.0;
    double gains = 0.0;
    double most = 0.0;
    std::vector<double> activity(program.rows(), 0.0);
    std::vector<double> size(program.rows(), 0.0);
    const auto ends = [](double rate, double lower, double upper, double slack) {
        return (rate > slack && std::isfinite(upper)) || (rate < -slack && std::isfinite(lower));
    };
    for (std::size_t j = 0; j < program.columns(); ++j)
        most = std::max(most, std::abs(direction[j]));
    for (std::size_t j = 0; j < program.columns(); ++j) {
        const double rate = direction[j];
        if (!std::isfinite(rate) || ends(rate, program.column_lower[j], program.column_upper[j], tolerance * most))
            return false;
        if (ends(rate, program.column_lower[j], program.column_upper[j], 0.0)) continue;
        gain += program.cost[j] * rate;
        gains += std::abs(program.cost[j] * rate);
        for (Eigen::SparseMatrix<double>::InnerIterator e(program.matrix, static_cast<Eigen::Index>(j)); e; ++e) {
            activity[static_cast<std::size_t>(e.row())] += e.value() * rate;
            size[static_cast<std::size_t>(e.row())] += std::abs(e.value() * rate);
        }
    }
    for (std::size_t i = 0; i < program.rows(); ++i)
        if (!std::isfinite(size[i]) ||
            ends(activity[i], program.row_lower[i], program.row_upper[i], tolerance * size[i]))
            return false;
    return gain < -tolerance * gains;
}

} // namespace optpipe::milp
