#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Shrinks coefficients of integer variables in rows with one side. A coefficient is too large if the row is redundant
/// once the variable leaves one bound. A smaller coefficient keeps all integer points and cuts off others (Savelsbergh
/// 1994).
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
    /// A row with shrinking coefficients, as `sign` · row ≤ `side`.
    struct shrinking_row {
        double sign;
        double side;
        double noise = 0.0;
        proposal steps;

        /// The largest contribution of a term to `sign` · row.
        [[nodiscard]] double part(const reducible& m, double coefficient, variable x) const {
            const double a = sign * coefficient;
            return a * (a > 0.0 ? m.upper(x) : m.lower(x));
        }
    };

    static proposal tightened(const reducible& m, row r, double sign, const margins& slack) {
        shrinking_row now{sign, sign > 0.0 ? m.upper(r) : -m.lower(r), 0.0, {{}, {r}, {}}};
        const auto most_in = [&](const activity_range& range) { return sign > 0.0 ? range.upper() : -range.lower(); };
        const double reached = most_in(m.activity(r));
        if (!std::isfinite(reached) || reached <= now.side + slack.excess_at(now.side)) return {};
        // The largest term is left out of the sum, to keep digits.
        const auto& terms = m.terms(r);
        const auto largest = std::max_element(terms.begin(), terms.end(), [](const term& a, const term& b) {
            return std::abs(a.coefficient) < std::abs(b.coefficient);
        });
        activity_range range;
        for (auto t = terms.begin(); t != terms.end(); ++t)
            if (t != largest) range.add(t->coefficient, m.lower(t->column), m.upper(t->column));
        const double kept = tighten(m, r, *largest, most_in(range), range.noise(), slack, now);
        range.add(kept, m.lower(largest->column), m.upper(largest->column));
        double most = most_in(range);
        for (auto t = terms.begin(); t != terms.end(); ++t) {
            if (t == largest) continue;
            const double others = most - now.part(m, t->coefficient, t->column);
            const double smaller = tighten(m, r, *t, others, range.noise(now.side, now.side), slack, now);
            if (smaller != t->coefficient) most = others + now.part(m, smaller, t->column);
        }
        if (!now.steps.steps.empty())
            now.steps.steps.push_back(sign > 0.0 ? bound_row{r, -infinity, now.side, now.noise}
                                                 : bound_row{r, -now.side, infinity, now.noise});
        return std::move(now.steps);
    }
    /// Shrinks a coefficient if possible, and returns it. `others` is the largest value of the sum of the other terms.
    /// The other terms keep their room at the bound where this term is largest. One step away from the bound, the room
    /// is just enough for `others`.
    static double tighten(const reducible& m, row r, const term& t, double others, double noise, const margins& slack,
                          shrinking_row& now) {
        if (!m.is_integer(t.column)) return t.coefficient;
        const double a = now.sign * t.coefficient;
        const double end = a > 0.0 ? m.upper(t.column) : m.lower(t.column);
        const auto room = difference(now.side, a, end);
        const auto size = difference(others, room.value);
        // A rounding error becomes 0, unless it matters somewhere in the column's range.
        const double lost = size.noise > 0.0 ? size.noise * (m.upper(t.column) - m.lower(t.column)) : 0.0;
        const bool is_rounded = slack.is_negligible(lost);
        const double needed = is_rounded ? size.value : size.value + size.noise;
        const double excess = std::abs(a) - needed;
        if (excess <= parameters.least_change * std::abs(a) || excess <= slack.excess_at(now.side))
            return t.coefficient;
        const double smaller = a > 0.0 ? needed : -needed;
        const auto moved = difference(room.value, -smaller, end);
        now.steps.steps.push_back(set_coefficient{r, t.column, now.sign * smaller});
        now.side = moved.value;
        now.noise += noise + room.noise + (is_rounded ? lost : 0.0) + moved.noise;
        return now.sign * smaller;
    }
};

} // namespace optpipe::milp::presolving
