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

/// One violation by a point, and its amount. If the value is NaN, so is the amount.
struct infeasibility {
    infeasibility_kind kind = infeasibility_kind::bounds;
    std::size_t position = 0; ///< index of the variable or row
    double value = 0.0;       ///< value of the variable, or of the sum of the row's terms
    double amount = 0.0;

    friend bool operator==(const infeasibility&, const infeasibility&) = default;
};

/// The sum of the terms at `values`. It is computed with extra digits, and rounded once.
[[nodiscard]] double activity(std::span<const term> terms, std::span<const double> values);

/// The objective in the model's own direction, including the offset.
[[nodiscard]] double objective_value(const model& m, std::span<const double> values);

/// All violations by `values`, which has one value per variable; empty for a feasible point. Independent of how the
/// values were found. `feasibility` defines what may be violated, and by how much.
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

/// An interval, and the distance of values from it.
struct interval_check {
    double lower;
    double upper;
    feasibility feasible;

    [[nodiscard]] double distance(double value) const {
        if (std::isnan(value)) return value;
        return std::max({lower - value, value - upper, 0.0});
    }
    [[nodiscard]] bool accepts(double value) const {
        return feasible.is_above(value, lower) && feasible.is_below(value, upper) && std::isfinite(value);
    }
};

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
    std::vector<infeasibility> found;
    for (const variable x : m.all_variables()) {
        const double value = values[x.position()];
        const detail::interval_check bounds{m.lower(x), m.upper(x), {tolerance}};
        if (!bounds.accepts(value))
            found.push_back({infeasibility_kind::bounds, x.position(), value, bounds.distance(value)});
        const double fraction = std::abs(value - std::round(value));
        if (m.is_integer(x) && fraction > tolerance.at(1.0))
            found.push_back({infeasibility_kind::integrality, x.position(), value, fraction});
    }
    for (const row r : m.all_rows()) {
        const double value = activity(m.terms(r), values);
        const detail::interval_check bounds{m.row_lower(r), m.row_upper(r), {tolerance}};
        if (!bounds.accepts(value))
            found.push_back({infeasibility_kind::rows, r.position(), value, bounds.distance(value)});
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
