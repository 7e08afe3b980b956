#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Shrinks coefficients of integers in rows with one side. If the row becomes redundant as soon as the integer leaves
/// one of its bounds, its coefficient is larger than needed. The smaller one admits the same integer points and fewer
/// others (Savelsbergh 1994).
struct coefficient_tightening {
    static constexpr std::string_view name = "coefficient tightening";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since)) continue;
            const bool has_lower = m.lower(r) > -infinity;
            if (has_lower == (m.upper(r) < infinity)) continue;
            if (auto p = tightened(m, r, has_lower ? -1.0 : 1.0, slack); !p.steps.empty()) found.add(std::move(p));
        }
    }

private:
    /// The row is read as `sign` · row ≤ side.
    static proposal tightened(const reducible& m, row r, double sign, const margins& slack) {
        const auto range = m.activity(r);
        double most = sign > 0.0 ? range.upper() : -range.lower();
        const double side_before = sign > 0.0 ? m.upper(r) : -m.lower(r);
        double side = side_before;
        double noise = range.noise(m.lower(r), m.upper(r));
        proposal p{{}, {r}, {}};
        if (!std::isfinite(most) || most <= side + slack.excess_at(side)) return p;
        for (const auto& t : m.terms(r)) {
            if (!m.is_integer(t.column)) continue;
            const double a = sign * t.coefficient;
            const double excess = side - (most - std::abs(a));
            if (excess <= parameters.least_change * std::abs(a) || excess <= slack.excess_at(side)) continue;
            const double end = a > 0.0 ? m.upper(t.column) : m.lower(t.column);
            const double change = a > 0.0 ? -excess : excess;
            const auto smaller = difference(a, -change);
            const auto moved = difference(side, -change, end);
            p.steps.push_back(set_coefficient{r, t.column, sign * smaller.value});
            noise += smaller.noise * std::abs(end) + moved.noise;
            side = moved.value;
            most = difference(most, -change, end).value;
        }
        if (side != side_before)
            p.steps.push_back(sign > 0.0 ? bound_row{r, -infinity, side, noise} : bound_row{r, -side, infinity, noise});
        return p;
    }
};

} // namespace optpipe::milp::presolving
