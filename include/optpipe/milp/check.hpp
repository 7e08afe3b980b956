#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/milp/model.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace optpipe::milp {

enum class infeasibility_kind : unsigned char { bounds, integrality, rows };

/// A constraint that a point violates, and the amount of the violation. If the value is NaN, the amount is NaN, too.
struct infeasibility {
    infeasibility_kind kind = infeasibility_kind::bounds;
    std::size_t position = 0; ///< index of the violated variable or row
    double value = 0.0;       ///< value of the variable, or of the sum of the row's terms
    double amount = 0.0;

    friend bool operator==(const infeasibility&, const infeasibility&) = default;
};

/// The sum of the terms at `values`. The sum is computed with extra digits, and rounded once.
[[nodiscard]] double activity(std::span<const term> terms, std::span<const double> values);

/// The objective at `values`, including the offset. The result isn't negated if the model maximizes.
[[nodiscard]] double objective_value(const model& m, std::span<const double> values);

/// All violations by the point `values` (one value per variable). Empty if the point is feasible. The check is
/// independent of the method that found the values. `feasibility` defines the tolerances. Integer variables are rounded
/// before the activities of rows are computed.
[[nodiscard]] std::vector<infeasibility> check(const model& m, std::span<const double> values,
                                               optpipe::tolerance tolerance = {});

/// A text such as "x7: is 1.5, which is 0.5 outside of its bounds".
[[nodiscard]] std::string describe(const model& m, const infeasibility& what);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/milp/feasibility.hpp"

#include <algorithm>
#include <cmath>

namespace optpipe::milp {
namespace detail {

/// An interval for a value, and the value's distance from it.
struct interval_check {
    double lower;
    double upper;

    [[nodiscard]] double distance(double value) const {
        if (std::isnan(value)) return value;
        return std::max({lower - value, value - upper, 0.0});
    }
    /// Whether the value is inside the interval, up to the slack plus `noise`.
    [[nodiscard]] bool accepts(double value, const feasibility& feasible, double noise = 0.0) const {
        return std::isfinite(value) && std::isfinite(noise) && value >= lower - feasible.slack(lower) - noise &&
               value <= upper + feasible.slack(upper) + noise;
    }
};

[[nodiscard]] inline std::vector<double> with_rounded_integers(const model& m, std::span<const double> values,
                                                               const feasibility& feasible) {
    std::vector<double> rounded{values.begin(), values.end()};
    for (const variable x : m.all_variables()) {
        double& value = rounded[x.position()];
        if (m.is_integer(x) && std::abs(value - std::round(value)) <= feasible.integrality()) value = std::round(value);
    }
    return rounded;
}

/// The largest magnitude of a term at a point.
[[nodiscard]] inline double largest_term(std::span<const term> terms, std::span<const double> values) {
    double largest = 0.0;
    for (const auto& t : terms)
        largest = std::max(largest, std::abs(t.coefficient * values[t.column.position()]));
    return largest;
}
/// Whether `activity` satisfies a row at a point whose integer variables are rounded. There is no slack if all terms
/// are integral and the sum is exact.
[[nodiscard]] inline bool accepts(const model& m, row r, double activity, std::span<const double> values,
                                  const feasibility& feasible) {
    const auto terms = m.terms(r);
    const double largest = largest_term(terms, values);
    const double lower = m.row_lower(r), upper = m.row_upper(r);
    const bool is_exact = static_cast<double>(terms.size()) * largest < largest_exact_integer && is_integral(activity);
    if (is_exact && is_integral(m, r))
        return activity >= feasible.rounded_up(lower) && activity <= feasible.rounded_down(upper);
    return interval_check{lower, upper}.accepts(activity, feasible, noise_of_sum(largest));
}

/// Whether a variable's value is within its bounds. The bounds of integers that doubles tell apart have no slack.
[[nodiscard]] inline bool accepts(const model& m, variable x, double value, const feasibility& feasible) {
    const double rounded = std::round(value);
    const bool is_integer = m.is_integer(x) && std::abs(value - rounded) <= feasible.integrality();
    if (is_integer && std::abs(rounded) < largest_exact_integer)
        return rounded >= feasible.rounded_up(m.lower(x)) && rounded <= feasible.rounded_down(m.upper(x));
    return interval_check{m.lower(x), m.upper(x)}.accepts(value, feasible);
}

} // namespace detail

OPTPIPE_INLINE double activity(std::span<const term> terms, std::span<const double> values) {
    long double sum = 0.0L;
    for (const auto& t : terms)
        sum += static_cast<long double>(t.coefficient) * static_cast<long double>(values[t.column.position()]);
    return static_cast<double>(sum);
}

OPTPIPE_INLINE double objective_value(const model& m, std::span<const double> values) {
    OPTPIPE_EXPECT(values.size() == m.variables(), "objective_value: one value per variable");
    long double sum = static_cast<long double>(m.offset());
    for (const variable x : m.all_variables())
        if (m.cost(x) != 0.0)
            sum += static_cast<long double>(m.cost(x)) * static_cast<long double>(values[x.position()]);
    return static_cast<double>(sum);
}

OPTPIPE_INLINE std::vector<infeasibility> check(const model& m, std::span<const double> values,
                                                optpipe::tolerance tolerance) {
    OPTPIPE_EXPECT(values.size() == m.variables(), "check: one value per variable");
    const feasibility feasible{tolerance};
    std::vector<infeasibility> found;
    for (const variable x : m.all_variables()) {
        const double value = values[x.position()];
        const detail::interval_check bounds{m.lower(x), m.upper(x)};
        if (!detail::accepts(m, x, value, feasible))
            found.push_back({infeasibility_kind::bounds, x.position(), value, bounds.distance(value)});
        const double fraction = std::abs(value - std::round(value));
        if (m.is_integer(x) && fraction > feasible.integrality())
            found.push_back({infeasibility_kind::integrality, x.position(), value, fraction});
    }
    const auto point = detail::with_rounded_integers(m, values, feasible);
    for (const row r : m.all_rows()) {
        const double value = activity(m.terms(r), point);
        const detail::interval_check sides{m.row_lower(r), m.row_upper(r)};
        if (!detail::accepts(m, r, value, point, feasible))
            found.push_back({infeasibility_kind::rows, r.position(), value, sides.distance(value)});
    }
    return found;
}

OPTPIPE_INLINE std::string describe(const model& m, const infeasibility& what) {
    const auto amount = format_number(what.amount);
    const auto is = ": is " + format_number(what.value, 17) + ", which is " + amount;
    switch (what.kind) {
    case infeasibility_kind::bounds: return name_of(m, variable{what.position}) + is + " outside of its bounds";
    case infeasibility_kind::integrality: return name_of(m, variable{what.position}) + is + " from an integer";
    case infeasibility_kind::rows: return name_of(m, row{what.position}) + is + " outside of its bounds";
    }
    return {};
}

} // namespace optpipe::milp
#endif
