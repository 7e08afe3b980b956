#pragma once

#include <optpipe/milp/lp/simplex.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

/// Judges answers to linear programs only by the definitions, on dense copies; shares no code with the tested solver.
namespace judge {

using optpipe::milp::linear_program;
using optpipe::milp::lp_status;
using optpipe::milp::simplex;

struct dense {
    explicit dense(const linear_program& p) : rows(p.rows()), columns(p.columns()), entries(rows * columns, 0.0) {
        for (int j = 0; j < p.matrix.outerSize(); ++j)
            for (Eigen::SparseMatrix<double>::InnerIterator e(p.matrix, j); e; ++e)
                entries[static_cast<std::size_t>(e.row()) * columns + static_cast<std::size_t>(j)] = e.value();
    }
    [[nodiscard]] double at(std::size_t i, std::size_t j) const { return entries[i * columns + j]; }
    std::size_t rows;
    std::size_t columns;
    std::vector<double> entries;
};

/// A sum, and the sum of the sizes of its terms, which bounds its rounding error.
struct sum {
    double value = 0.0;
    double size = 0.0;
    void add(double v) {
        value += v;
        size += std::abs(v);
    }
};

inline bool outside(double v, double lower, double upper, double slack) {
    return v < lower - slack || v > upper + slack;
}

/// Empty if x satisfies all constraints up to the tolerance, relative to the summed terms.
inline std::string infeasibility(const linear_program& p, std::span<const double> x, double tolerance) {
    const dense a{p};
    for (std::size_t j = 0; j < a.columns; ++j)
        if (outside(x[j], p.column_lower[j], p.column_upper[j], tolerance * (1.0 + std::abs(x[j]))))
            return "column " + std::to_string(j);
    for (std::size_t i = 0; i < a.rows; ++i) {
        sum s;
        for (std::size_t j = 0; j < a.columns; ++j)
            s.add(a.at(i, j) * x[j]);
        if (outside(s.value, p.row_lower[i], p.row_upper[i], tolerance * (1.0 + s.size)))
            return "row " + std::to_string(i);
    }
    return {};
}

/// The least value of `factor` times a number between two bounds; tiny multiples of an unbounded number are 0.
inline double least(double factor, double lower, double upper, double tiny) {
    const double bound = factor > 0.0 ? lower : upper;
    if (std::abs(factor) <= tiny && !std::isfinite(bound)) return 0.0;
    return factor == 0.0 ? 0.0 : factor * bound;
}

/// The Lagrangian bound of the multipliers, without or with the costs.
inline double bound(const linear_program& p, std::span<const double> y, bool with_costs) {
    const dense a{p};
    constexpr double tiny = 1e-8;
    double total = 0.0;
    double largest = 0.0;
    for (const double v : y)
        largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < a.rows; ++i)
        total += least(y[i], p.row_lower[i], p.row_upper[i], tiny * (with_costs ? 1.0 + largest : largest));
    for (std::size_t j = 0; j < a.columns; ++j) {
        sum d;
        if (with_costs) d.add(p.cost[j]);
        for (std::size_t i = 0; i < a.rows; ++i)
            d.add(-y[i] * a.at(i, j));
        total += least(d.value, p.column_lower[j], p.column_upper[j], tiny * (1.0 + d.size));
    }
    return total;
}

inline bool has_crossed_bounds(const linear_program& p) {
    for (std::size_t j = 0; j < p.columns(); ++j)
        if (p.column_lower[j] > p.column_upper[j]) return true;
    for (std::size_t i = 0; i < p.rows(); ++i)
        if (p.row_lower[i] > p.row_upper[i]) return true;
    return false;
}

inline std::string wrong_optimum(const simplex& s) {
    const auto& p = s.program();
    if (const auto place = infeasibility(p, s.primal(), 1e-7); !place.empty()) return "infeasible: " + place;
    sum objective;
    for (std::size_t j = 0; j < p.columns(); ++j)
        objective.add(p.cost[j] * s.primal()[j]);
    const double slack = 1e-7 * (1.0 + objective.size);
    if (std::abs(objective.value - s.objective()) > slack) return "another objective";
    if (std::abs(bound(p, s.duals(), true) - objective.value) > slack) return "the multipliers prove less";
    if (s.dual_bound() > objective.value + 1e-9 * (1.0 + objective.size)) return "the bound is too high";
    return {};
}

inline std::string wrong_ray(const linear_program& p, std::span<const double> direction) {
    const dense a{p};
    constexpr double tolerance = 1e-8;
    double most = 0.0;
    for (const double v : direction)
        most = std::max(most, std::abs(v));
    const auto ends = [](double rate, double lower, double upper, double slack) {
        return (rate > slack && std::isfinite(upper)) || (rate < -slack && std::isfinite(lower));
    };
    sum gain;
    for (std::size_t j = 0; j < a.columns; ++j) {
        gain.add(p.cost[j] * direction[j]);
        if (ends(direction[j], p.column_lower[j], p.column_upper[j], tolerance * most)) return "a column ends it";
    }
    for (std::size_t i = 0; i < a.rows; ++i) {
        sum s;
        for (std::size_t j = 0; j < a.columns; ++j)
            s.add(a.at(i, j) * direction[j]);
        if (ends(s.value, p.row_lower[i], p.row_upper[i], tolerance * s.size)) return "a row ends it";
    }
    return gain.value < 0.0 ? std::string{} : "it gains nothing";
}

/// Empty if the claim holds.
inline std::string objection(const simplex& s, lp_status status) {
    const auto& p = s.program();
    switch (status) {
    case lp_status::optimal: return wrong_optimum(s);
    case lp_status::infeasible:
        return has_crossed_bounds(p) || bound(p, s.infeasibility_ray(), false) > 0.0 ? std::string{} : "no proof";
    case lp_status::unbounded:
        if (const auto place = infeasibility(p, s.primal(), 1e-7); !place.empty()) return "infeasible: " + place;
        return wrong_ray(p, s.unbounded_ray());
    case lp_status::cutoff:
    case lp_status::iteration_limit:
    case lp_status::stopped:
    case lp_status::numerical_trouble: break;
    }
    return "no answer";
}

} // namespace judge
