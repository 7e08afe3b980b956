#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/milp/check.hpp"
#include "optpipe/milp/feasibility.hpp"
#include "optpipe/milp/presolve/margins.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <variant>
#include <vector>

/// The reductions of presolve. Each reduction is data and can be applied. A reduction that removes a column returns an
/// undo for the column's value. `leave` eliminates the column from a row, and returns false if no linear row remains.
namespace optpipe::milp::presolving {

enum class verdict : unsigned char { applied, unchanged, infeasible, unbounded };

/// A row under elimination, with one coefficient per original column.
struct open_row {
    std::vector<double> coefficients;
    double constant = 0.0;

    /// Substitutes x = (side - others) / pivot.
    void solve_for(variable x, double side, std::span<const term> others, double pivot) {
        const double factor = std::exchange(coefficients[x.position()], 0.0) / pivot;
        if (factor == 0.0) return;
        constant = difference(constant, -factor, side).value;
        for (const auto& t : others) {
            double& a = coefficients[t.column.position()];
            a = difference(a, factor, t.coefficient).value;
        }
    }
};

/// Fixes x at a value.
struct fix_column {
    variable x;
    double value = 0.0;
    double noise = 0.0; ///< error of the value

    struct undo {
        variable x;
        double value;
        void operator()(std::span<double> values) const { values[x.position()] = value; }
        [[nodiscard]] bool leave(open_row& r) const {
            r.solve_for(x, value, {}, 1.0);
            return true;
        }
    };

    [[nodiscard]] undo apply(reducible& m) const {
        for (const auto& e : std::vector<column_entry>{m.entries(x)}) {
            if (m.has(e.at)) m.shift(e.at, e.coefficient, value, noise);
        }
        m.add_to_offset(m.cost(x) * value);
        m.remove(x);
        return {x, value};
    }
};

/// Replaces x by constant + terms. Contract: the bounds of the columns in `terms` imply the bounds of x.
struct substitute_column {
    variable x;
    std::vector<term> terms;
    double constant = 0.0;
    double noise = 0.0; ///< error of constant + terms

    struct undo {
        variable x;
        std::vector<term> terms;
        double constant;
        double lower;
        double upper;
        bool is_integer;
        void operator()(std::span<double> values) const {
            const double value = activity(terms, values) + constant;
            const double nearest = std::round(value);
            constexpr double rounding = 1e-5;
            const bool rounds = is_integer && std::abs(value - nearest) < rounding;
            values[x.position()] = std::clamp(rounds ? nearest : value, lower, upper);
        }
        [[nodiscard]] bool leave(open_row& r) const {
            r.solve_for(x, -constant, terms, -1.0);
            return true;
        }
    };

    [[nodiscard]] undo apply(reducible& m) const {
        undo result{x, terms, constant, m.lower(x), m.upper(x), m.is_integer(x)};
        const auto entries = m.entries(x);
        const double cost = m.cost(x);
        m.remove(x);
        for (const auto& e : entries) {
            if (!m.has(e.at)) continue;
            m.shift(e.at, e.coefficient, constant, noise);
            for (const auto& t : terms)
                m.set_coefficient(e.at, t.column,
                                  difference(m.coefficient(e.at, t.column), -e.coefficient, t.coefficient));
        }
        for (const auto& t : terms)
            if (cost != 0.0) m.set_cost(t.column, difference(m.cost(t.column), -cost, t.coefficient).value);
        m.add_to_offset(cost * constant);
        return result;
    }
};

/// Whether x = constant + ... computes a small number as the difference of large numbers.
[[nodiscard]] inline bool loses_digits(const reducible& m, variable x, double constant) {
    const bool is_bounded = std::isfinite(m.lower(x)) && std::isfinite(m.upper(x));
    return is_bounded && std::abs(constant) > parameters.largest_cancellation * m.size(x);
}

/// Whether an error of `noise` in x is within the tolerances of its rows and of the objective.
[[nodiscard]] inline bool is_tolerable(const reducible& m, variable x, double noise, const margins& slack) {
    const double most = slack.feasible.integrality();
    return std::abs(m.cost(x)) * noise <= most &&
           std::all_of(m.entries(x).begin(), m.entries(x).end(),
                       [&](const column_entry& e) { return std::abs(e.coefficient) * noise <= most; });
}

/// Whether an equation determines the column of `t` without an error that matters.
[[nodiscard]] inline bool is_determined(const reducible& m, row r, const term& t, const margins& slack) {
    return m.is_integer(t.column) || is_tolerable(m, t.column, m.noise(r) / std::abs(t.coefficient), slack);
}

/// The largest distance of a row's activity from a multiple of the divisor, at any point with integer values.
[[nodiscard]] inline double error_of_multiples(const reducible& m, row r, double divisor) {
    double error = 0.0;
    for (const auto& t : m.terms(r))
        error += m.error_in_row(t.column, t.coefficient, distance_to_multiple(t.coefficient, divisor));
    return error;
}

/// The error of the row's activity if x is rounded to the integer that is nearest to (`side` - other terms) /
/// coefficient; 0 if x is continuous.
[[nodiscard]] inline double error_of_equation(const reducible& m, row r, const term& t, double side) {
    if (!m.is_integer(t.column)) return 0.0;
    return distance_to_multiple(side, t.coefficient) + error_of_multiples(m, r, t.coefficient);
}

/// Whether (`side` - other terms) / coefficient is always a valid value of the column. The quotients of an integer
/// column may then be rounded: the error of the side can't stand for an integer.
[[nodiscard]] inline bool stays_integral(const reducible& m, row r, const term& t, double side, const margins& slack) {
    if (!m.is_integer(t.column)) return true;
    const auto& terms = m.terms(r);
    const auto is_multiple = [&](const term& other) {
        return m.is_integer(other.column) && slack.is_integral(other.coefficient / t.coefficient);
    };
    if (!slack.is_integral(side / t.coefficient) || !std::all_of(terms.begin(), terms.end(), is_multiple)) return false;
    const double error = error_of_equation(m, r, t, side);
    return slack.is_negligible(error) && 2.0 * (m.noise(r) + error) < std::abs(t.coefficient);
}

/// The quotient in an equation that determines the column x; rounded if x is an integer (`stays_integral`).
[[nodiscard]] inline rounded quotient_for(const reducible& m, variable x, double a, double divisor) {
    return m.is_integer(x) ? rounded{std::round(a / divisor), 0.0} : quotient(a, divisor);
}

[[nodiscard]] inline double noise_of_product(double a, double b) {
    const auto finite = [](double v) { return std::isfinite(v) ? std::abs(v) : 0.0; };
    return std::numeric_limits<double>::epsilon() * std::max(finite(a), finite(b));
}

/// Removes a continuous, costless column x that occurs only in the row `at`. The row's bounds become wider.
struct absorb_column {
    variable x;
    row at;

    struct undo {
        variable x;
        double lower;
        double upper;
        double coefficient;
        double row_lower;
        double row_upper;
        std::vector<term> others;

        void operator()(std::span<double> values) const {
            const double rest = activity(others, values);
            double low = (row_lower - rest) / coefficient;
            double high = (row_upper - rest) / coefficient;
            if (low > high) std::swap(low, high);
            low = std::max(low, lower);
            high = std::min(high, upper);
            const double value = low <= high ? std::clamp(0.0, low, high) : low + (high - low) / 2.0;
            values[x.position()] = std::clamp(value, lower, upper);
        }
        /// If `at` is an equation, it determines x. If `at` isn't an equation, returns true only for rows that don't
        /// contain x.
        [[nodiscard]] bool leave(open_row& r) const {
            if (row_lower != row_upper) return r.coefficients[x.position()] == 0.0;
            r.solve_for(x, row_lower, others, coefficient);
            return true;
        }
    };

    [[nodiscard]] undo apply(reducible& m) const {
        const double a = m.coefficient(at, x);
        undo result{x, m.lower(x), m.upper(x), a, m.lower(at), m.upper(at), {}};
        const double low = std::min(a * m.lower(x), a * m.upper(x));
        const double high = std::max(a * m.lower(x), a * m.upper(x));
        m.remove(x);
        result.others = m.terms(at);
        const auto below = difference(m.lower(at), high);
        const auto above = difference(m.upper(at), low);
        m.add_noise(at, std::max(below.noise, above.noise) + (a == std::round(a) ? 0.0 : noise_of_product(low, high)));
        m.set_bounds(at, below.value, above.value);
        return result;
    }
};

/// Moves the cost of x to the other columns of an equation.
struct move_cost {
    variable x;
    row equation;

    void apply(reducible& m) const {
        const double ratio = m.cost(x) / m.coefficient(equation, x);
        for (const auto& t : m.terms(equation))
            if (t.column != x) m.set_cost(t.column, difference(m.cost(t.column), ratio, t.coefficient).value);
        m.add_to_offset(ratio * m.lower(equation));
        m.set_cost(x, 0.0);
    }
};

/// Merges two columns: from now on, the column `kept` stands for kept + factor * merged. The merged column is `factor`
/// times the kept column in all rows and in cost.
struct merge_columns {
    variable kept;
    variable merged;
    double factor = 1.0;

    struct undo {
        variable kept;
        variable merged;
        double factor;
        double kept_lower;
        double kept_upper;
        double lower;
        double upper;
        bool is_integer;

        /// Gives the merged column the least magnitude that keeps the other column within bounds.
        void operator()(std::span<double> values) const {
            const double sum = values[kept.position()];
            double low = (sum - kept_lower) / factor;
            double high = (sum - kept_upper) / factor;
            if (low > high) std::swap(low, high);
            low = std::max(low, lower);
            high = std::min(high, upper);
            double value = low <= high ? std::clamp(0.0, low, high) : low + (high - low) / 2.0;
            constexpr double noise = 1e-6;
            if (is_integer) value = value == low ? std::ceil(value - noise) : std::floor(value + noise);
            values[merged.position()] = value;
            values[kept.position()] = sum - factor * value;
        }
        /// Returns whether row `r` can be expressed in terms of the new column.
        [[nodiscard]] bool leave(open_row& r) const {
            const double of_merged = std::exchange(r.coefficients[merged.position()], 0.0);
            return difference(of_merged, factor, r.coefficients[kept.position()]).value == 0.0;
        }
    };

    [[nodiscard]] undo apply(reducible& m) const {
        const undo result{kept,          merged,          factor,          m.lower(kept),
                          m.upper(kept), m.lower(merged), m.upper(merged), m.is_integer(merged)};
        const double low = factor * (factor > 0.0 ? m.lower(merged) : m.upper(merged));
        const double high = factor * (factor > 0.0 ? m.upper(merged) : m.lower(merged));
        const double lower = m.lower(kept) + low;
        const double upper = m.upper(kept) + high;
        for (const auto& e : m.entries(kept)) {
            if (!m.has(e.at)) continue;
            const double a = m.coefficient(e.at, merged);
            m.add_noise(e.at, m.error_in_row(merged, a, std::abs(std::fma(factor, e.coefficient, -a))));
        }
        m.set_integer(kept, m.is_integer(kept) && m.is_integer(merged));
        m.remove(merged);
        m.set_bounds(kept, lower, upper);
        return result;
    }
};

/// Removes x and all of its rows. Contract: x has no cost, and a large (or small) enough x satisfies the rows.
struct release_column {
    variable x;
    bool upwards = true;

    struct undo {
        struct freed_row {
            double lower;
            double upper;
            double coefficient;
            std::vector<term> others;
        };
        variable x;
        bool upwards;
        bool is_integer;
        double nearest; ///< the value within the bounds that is closest to 0
        std::vector<freed_row> rows;

        void operator()(std::span<double> values) const {
            double value = nearest;
            for (const auto& r : rows) {
                const bool from_below = upwards == (r.coefficient > 0.0);
                const double side = from_below ? r.lower : r.upper;
                if (!std::isfinite(side)) continue;
                const double needed = (side - activity(r.others, values)) / r.coefficient;
                value = upwards ? std::max(value, needed) : std::min(value, needed);
            }
            values[x.position()] = !is_integer ? value : upwards ? std::ceil(value) : std::floor(value);
        }
        [[nodiscard]] bool leave(open_row& r) const { return r.coefficients[x.position()] == 0.0; }
    };

    [[nodiscard]] undo apply(reducible& m) const {
        const double least = m.lower(x);
        const double most = m.upper(x);
        undo result{x, upwards, m.is_integer(x), least > 0.0 ? least : most < 0.0 ? most : 0.0, {}};
        const auto entries = m.entries(x);
        m.remove(x);
        for (const auto& e : entries) {
            if (!m.has(e.at)) continue;
            result.rows.push_back({m.lower(e.at), m.upper(e.at), e.coefficient, m.terms(e.at)});
            m.remove(e.at);
        }
        return result;
    }
};

using undo = std::variant<fix_column::undo, substitute_column::undo, absorb_column::undo, merge_columns::undo,
                          release_column::undo>;

/// Tightens the bounds of x, allowing for `noise` in the new bounds. If the bounds leave one value, x is fixed.
struct bound_column {
    variable x;
    double lower = -infinity;
    double upper = infinity;
    double noise = 0.0;
    double grace = 0.0; ///< how far an integer variable x may exceed the new bounds
};

/// Replaces the bounds of a row.
struct bound_row {
    row at;
    double lower = -infinity;
    double upper = infinity;
    double noise = 0.0; ///< error in addition to the error of the row

    void apply(reducible& m) const {
        m.set_bounds(at, lower, upper);
        m.add_noise(at, noise);
    }
};

struct remove_row {
    row at;

    void apply(reducible& m) const { m.remove(at); }
};

struct set_coefficient {
    row at;
    variable x;
    double value = 0.0;

    void apply(reducible& m) const { m.set_coefficient(at, x, value); }
};

/// The model is infeasible or unbounded.
struct give_up {
    verdict why = verdict::infeasible;
};

using reduction = std::variant<bound_column, bound_row, remove_row, set_coefficient, fix_column, substitute_column,
                               absorb_column, move_cost, merge_columns, release_column, give_up>;

/// Reductions to apply in sequence if the listed rows and columns are unchanged.
struct proposal {
    std::vector<reduction> steps;
    std::vector<row> rows;
    std::vector<variable> columns;
};

/// Collects the proposals of a method.
class proposal_list {
public:
    void add(proposal p) { proposals_.push_back(std::move(p)); }
    /// Adds a reduction that stays valid whatever else changes.
    void add(reduction r) { proposals_.push_back({{std::move(r)}, {}, {}}); }
    [[nodiscard]] const std::vector<proposal>& proposals() const { return proposals_; }

private:
    std::vector<proposal> proposals_;
};

} // namespace optpipe::milp::presolving
