#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace optpipe::milp::presolving {

/// The interval of x implied by a row and the best bounds of its other columns.
struct implied_interval {
    double lower = -infinity;
    double upper = infinity;
    double noise = 0.0; ///< error of each end
};

[[nodiscard]] inline implied_interval implied_by(const reducible& m, row r, const activity_range& range,
                                                 const term& t) {
    const double low = m.lower(t.column);
    const double high = m.upper(t.column);
    const auto at_most = quotient(m.upper(r) - range.lower_without(t.coefficient, low, high), t.coefficient);
    const auto at_least = quotient(m.lower(r) - range.upper_without(t.coefficient, low, high), t.coefficient);
    const double in_row = m.noise(r) + range.noise(m.lower(r), m.upper(r));
    const double noise = in_row / std::abs(t.coefficient) + std::max(at_most.noise, at_least.noise);
    return t.coefficient > 0.0 ? implied_interval{at_least.value, at_most.value, noise}
                               : implied_interval{at_most.value, at_least.value, noise};
}

/// Whether an implied bound is as good as the column's own bound, up to a rounding error that is within the tolerances
/// of the column's rows.
[[nodiscard]] inline bool implies_lower(const reducible& m, variable x, double implied, const margins& slack) {
    if (implied >= m.lower(x)) return true; // also if both are infinite
    const double off = m.lower(x) - implied;
    return off <= margins::noise_at(m.lower(x)) && is_tolerable(m, x, off, slack);
}
[[nodiscard]] inline bool implies_upper(const reducible& m, variable x, double implied, const margins& slack) {
    if (implied <= m.upper(x)) return true;
    const double off = implied - m.upper(x);
    return off <= margins::noise_at(m.upper(x)) && is_tolerable(m, x, off, slack);
}

/// The error of a row's activity at the point where the column x, moved upwards or downwards, meets the row's side
/// before its own bound: x may exceed the bound by the errors that `implies_lower` and `implies_upper` accept.
[[nodiscard]] inline double error_at_side(const reducible& m, const term& t, const implied_interval& implied,
                                          bool upwards) {
    const double off = upwards ? implied.upper - m.upper(t.column) : m.lower(t.column) - implied.lower;
    return std::abs(t.coefficient) * ((off > 0.0 ? off : 0.0) + implied.noise);
}

/// Tightens the bounds of a column. New bounds follow from one row and the bounds of the row's other columns. Bounds of
/// continuous columns must gain enough (`margins::is_worth`), in models with integer variables.
struct implied_bounds {
    static constexpr std::string_view name = "implied bounds";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        bool has_integers = false;
        for (const variable x : m.all_variables())
            has_integers = has_integers || (m.has(x) && m.is_integer(x));
        if (!has_integers) return;
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since)) continue;
            const auto range = m.activity(r);
            if (range.open_below > 1 && range.open_above > 1) continue;
            for (const auto& t : m.terms(r))
                tighten(m, r, t, implied_by(m, r, range, t), slack, found);
        }
    }

private:
    static void tighten(const reducible& m, row r, const term& t, const implied_interval& implied, const margins& slack,
                        proposal_list& found) {
        const variable x = t.column;
        const double off = slack.grace(m.lower(r), m.upper(r), t.coefficient, implied.noise);
        const double lower = m.is_integer(x) ? margins::rounded_up(implied.lower, off) : implied.lower;
        const double upper = m.is_integer(x) ? margins::rounded_down(implied.upper, off) : implied.upper;
        const double range = m.upper(x) - m.lower(x);
        const bool better_lower = slack.is_worth(m.is_integer(x), lower - m.lower(x), range, lower);
        const bool better_upper = slack.is_worth(m.is_integer(x), m.upper(x) - upper, range, upper);
        if (!better_lower && !better_upper) return;
        const double noise = m.is_integer(x) ? 0.0 : implied.noise;
        found.add(bound_column{x, better_lower ? lower : -infinity, better_upper ? upper : infinity, noise});
    }
};

} // namespace optpipe::milp::presolving
