#pragma once

#include "optpipe/core/common_divisor.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {
namespace detail {

/// The largest error of a row that rounding its coefficients or a column's value may cause, as a share of the
/// feasibility tolerance. A row may be rounded several times, so the share is small. Not tuned.
inline constexpr double share_of_rounding = 1e-3;

/// Divides a row's lower side by `unit`, and rounds the quotient up to an integer. A quotient that exceeds an integer
/// only by noise is rounded to this integer.
[[nodiscard]] inline double integral_side(double side, double unit, double noise, const numbers& n) {
    constexpr double most = 0.1;
    const double scaled = side / unit;
    if (!std::isfinite(scaled)) return scaled;
    const double off = std::min((noise + n.noise_at(side)) / unit, most);
    return std::abs(scaled - std::round(scaled)) <= off
               ? std::round(scaled)
               : feasibility::rounded_up(scaled, n.rule().grace(n.slack(side), unit));
}

} // namespace detail

/// Finds continuous columns that are implied integers in some unit. Scales each implied integer by its unit, and marks
/// the column as `implied`.
///
/// The search begins with columns that can move without cost until a bound, or a row of integers, stops them.
///
/// The search continues with connected rows `c x - c y + (integers) >= b` of at most two continuous columns x and y. If
/// the integer variables are fixed, such rows describe a network. The network's vertices are multiples of a common
/// divisor of the sides, the bounds and the integer terms.
class implied_integers {
public:
    explicit implied_integers(problem& p)
        : problem_{p}, group_(p.columns()), bad_(p.columns(), 0), measures_(p.columns()), largest_(p.columns(), 1.0) {
        std::iota(group_.begin(), group_.end(), std::size_t{0});
        for (const auto& e : p.entries)
            largest_[e.column] = std::max(largest_[e.column], std::abs(e.coefficient));
    }

    /// Returns the number of implied columns found.
    std::size_t apply() {
        for (const double way : {1.0, -1.0})
            push(way);
        for (std::size_t i = 0; i < problem_.rows(); ++i)
            join(i);
        for (std::size_t i = 0; i < problem_.rows(); ++i)
            measure_row(i);
        for (std::size_t j = 0; j < problem_.columns(); ++j)
            measure_bounds(j);
        for (std::size_t j = 0; j < problem_.columns(); ++j)
            refuse_large(j);
        for (std::size_t j = 0; j < problem_.columns(); ++j)
            adopt(j);
        if (!chosen_.empty()) rescale();
        return chosen_.size();
    }

private:
    [[nodiscard]] bool open(std::size_t j) const { return problem_.kind[j] == column_kind::continuous; }
    std::size_t root(std::size_t j) {
        while (group_[j] != j)
            j = group_[j] = group_[group_[j]];
        return j;
    }
    /// Marks columns that can all move up (`way` is 1) or down (`way` is -1) to an integral value.
    void push(double way) {
        std::vector<common_divisor> stops(problem_.columns());
        std::vector<unsigned char> free(problem_.columns());
        for (std::size_t j = 0; j < problem_.columns(); ++j) {
            const double limit = way > 0.0 ? problem_.upper[j] : -problem_.lower[j];
            free[j] = open(j) && way * problem_.cost[j] <= 0.0 && std::isfinite(limit) &&
                              stops[j].add(limit, most_off(j, limit))
                          ? 1
                          : 0;
        }
        for (std::size_t i = 0; i < problem_.rows(); ++i)
            push_in_row(i, way, stops, free);
        for (std::size_t j = 0; j < problem_.columns(); ++j)
            if (free[j] != 0 && stops[j].value() > 0.0 && is_integral_bound(j, stops[j].value())) {
                problem_.unit[j] = stops[j].value();
                problem_.kind[j] = column_kind::implied;
                problem_.prefers_upper[j] = way > 0.0 ? 1 : 0;
                chosen_.push_back(j);
            }
    }
    [[nodiscard]] bool is_integral_bound(std::size_t j, double unit) const {
        for (const double bound : {problem_.lower[j] / unit, problem_.upper[j] / unit})
            if (std::isfinite(bound) && (std::abs(bound) > widest || bound != std::round(bound))) return false;
        return true;
    }
    void push_in_row(std::size_t i, double way, std::vector<common_divisor>& stops,
                     std::vector<unsigned char>& free) const {
        const auto entries = problem_.row_entries(i);
        const auto others =
            std::count_if(entries.begin(), entries.end(), [&](const entry& e) { return open(e.column); });
        for (const auto& e : entries) {
            if (free[e.column] == 0) continue;
            const double side = way * e.coefficient > 0.0 ? problem_.row_upper[i] : problem_.row_lower[i];
            if (!std::isfinite(side)) continue;
            auto& stop = stops[e.column];
            bool fine = others == 1 && stop.add(side / e.coefficient, most_off(e.column, side / e.coefficient));
            for (const auto& other : entries)
                fine = fine && (other.column == e.column || add_step(stop, e.column, other, e.coefficient));
            free[e.column] = fine ? 1 : 0;
        }
    }
    void join(std::size_t i) {
        std::optional<std::size_t> first;
        for (const auto& e : problem_.row_entries(i)) {
            if (!open(e.column)) continue;
            if (first) group_[root(e.column)] = root(*first);
            first = e.column;
        }
    }
    void measure_row(std::size_t i) {
        double coefficient = 0.0;
        double sum = 0.0;
        std::size_t count = 0, column = 0;
        for (const auto& e : problem_.row_entries(i))
            if (open(e.column)) {
                ++count;
                column = e.column;
                sum += e.coefficient;
                coefficient = std::max(coefficient, std::abs(e.coefficient));
            }
        if (count == 0) return;
        const auto g = root(column);
        if (count > 2 || (count == 2 && sum != 0.0)) {
            bad_[g] = 1;
            return;
        }
        add(column, problem_.row_lower[i] / coefficient);
        add(column, problem_.row_upper[i] / coefficient);
        for (const auto& e : problem_.row_entries(i))
            if (!open(e.column) && !add_step(measures_[g], column, e, coefficient)) bad_[g] = 1;
    }
    /// The largest error of a column's value that is rounded to a decimal. The errors of rows stay far below the
    /// tolerance, except for the last digits of large values.
    [[nodiscard]] double most_off(std::size_t j, double value) const {
        constexpr double digits = 4.0 * std::numeric_limits<double>::epsilon();
        return std::max(detail::share_of_rounding * problem_.tolerances.feasibility / largest_[j],
                        digits * std::abs(value));
    }
    /// Adds the change of column j for one unit of an integral column in a row. The row's coefficient of column j is
    /// `coefficient`.
    [[nodiscard]] bool add_step(common_divisor& to, std::size_t j, const entry& e, double coefficient) const {
        const double unit = problem_.unit[e.column];
        const double step = unit * e.coefficient / coefficient;
        double size = 1.0;
        for (const double bound : {problem_.lower[e.column], problem_.upper[e.column]})
            if (std::isfinite(bound)) size = std::max(size, std::abs(bound) / unit);
        return to.add(step, most_off(j, size * step) / size);
    }
    /// Must be called after the rows have been measured. A bound that is nearly a multiple of its group's divisor is
    /// rounded later. Rounding the bounds removes only noise: points rounded like the bounds still satisfy integral
    /// rows.
    void measure_bounds(std::size_t j) {
        if (!open(j)) return;
        for (const double bound : {problem_.lower[j], problem_.upper[j]})
            if (!is_nearly_integral(bound, measures_[root(j)].value())) add(j, bound);
    }
    [[nodiscard]] bool is_nearly_integral(double bound, double unit) const {
        constexpr double least_share = 1e-3; // largest noise, as a share of the unit
        if (!std::isfinite(bound) || unit <= 0.0) return false;
        const double noise = problem_.tolerances.noise_at(bound);
        return noise < least_share * unit && std::abs(bound - unit * std::round(bound / unit)) <= noise;
    }
    void add(std::size_t j, double value) {
        const auto group = root(j);
        if (std::isfinite(value) && !measures_[group].add(value, most_off(j, value))) bad_[group] = 1;
    }
    void refuse_large(std::size_t j) {
        const double unit = measures_[root(j)].value();
        for (const double bound : {problem_.lower[j], problem_.upper[j]})
            if (open(j) && std::isfinite(bound) && std::abs(bound) > widest * unit) bad_[root(j)] = 1;
    }
    void adopt(std::size_t j) {
        const auto g = root(j);
        if (!open(j) || bad_[g] != 0 || measures_[g].value() <= 0.0) return;
        problem_.unit[j] = measures_[g].value();
        problem_.kind[j] = column_kind::implied;
        chosen_.push_back(j);
    }
    void rescale() {
        for (const auto j : chosen_) {
            const double unit = problem_.unit[j];
            problem_.lower[j] = rounded(problem_.lower[j] / unit);
            problem_.upper[j] = rounded(problem_.upper[j] / unit);
            problem_.cost[j] *= unit;
        }
        for (auto& e : problem_.entries)
            e.coefficient *= problem_.unit[e.column];
    }
    static double rounded(double value) { return std::isfinite(value) ? std::round(value) : value; }

    static constexpr double widest = 1e9;

    problem& problem_;
    std::vector<std::size_t> group_;
    std::vector<unsigned char> bad_;
    std::vector<common_divisor> measures_;
    std::vector<double> largest_; ///< for each column, the largest magnitude of its coefficients, but at least 1
    std::vector<std::size_t> chosen_;
};

/// The error of the row's activity if its coefficients are rounded to multiples of `unit`.
[[nodiscard]] inline double error_of_multiples(const problem& p, std::size_t row, double unit) {
    double error = 0.0;
    for (const auto& e : p.row_entries(row)) {
        const double off = distance_to_multiple(e.coefficient, unit);
        error += error_in_row(e.coefficient, off, p.lower[e.column], p.upper[e.column]);
    }
    return error;
}

/// Divides rows of integral columns by the greatest common divisor of their coefficients. The divided coefficients and
/// sides are small integers, and their sums are exact. Rows stay as they are if rounding their coefficients matters.
inline void make_rows_integral(problem& p) {
    std::vector<double> coefficients;
    for (std::size_t i = 0; i < p.rows(); ++i) {
        coefficients.clear();
        bool all_integral = true;
        for (const auto& e : p.row_entries(i)) {
            all_integral = all_integral && p.is_integral(e.column);
            coefficients.push_back(e.coefficient);
        }
        if (!all_integral || coefficients.empty()) continue;
        const auto measure = common_divisor_of(coefficients);
        if (!measure || *measure <= 0.0) continue;
        const double error = error_of_multiples(p, i, *measure);
        if (error > detail::share_of_rounding * p.tolerances.feasibility) continue;
        for (auto k = p.row_start[i]; k < p.row_start[i + 1]; ++k)
            p.entries[k].coefficient = std::round(p.entries[k].coefficient / *measure);
        const double noise = p.row_noise[i] + error;
        p.row_lower[i] = detail::integral_side(p.row_lower[i], *measure, noise, p.tolerances);
        p.row_upper[i] = -detail::integral_side(-p.row_upper[i], *measure, noise, p.tolerances);
        p.row_noise[i] = 0.0;
    }
}

/// The step of the objective. If all columns with a cost are integral, best objectives are multiples of this step. If a
/// column with a cost isn't integral, the step is 0.
[[nodiscard]] inline double find_objective_step(const problem& p) {
    std::vector<double> costs;
    for (std::size_t j = 0; j < p.columns(); ++j) {
        if (p.cost[j] == 0.0) continue;
        if (!p.is_integral(j)) return 0.0;
        costs.push_back(p.cost[j]);
    }
    return common_divisor_of(costs).value_or(0.0);
}

} // namespace optpipe::milp::search
