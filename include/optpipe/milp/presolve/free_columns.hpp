#pragma once

#include "optpipe/milp/presolve/implied_bounds.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::milp::presolving {

/// Eliminates columns whose bounds are implied by their rows. An equation that contains an effectively free column
/// determines the column's value. The equation and the column are removed unless the remaining rows get much longer.
/// Keeps columns whose bound depends on an integer variable, such as flows of arcs that can be closed. Cuts need the
/// bounds of single columns, not a bound of a sum of columns.
class free_columns {
public:
    static constexpr std::string_view name = "free columns";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || !m.is_equation(r)) continue;
            if (m.terms(r).size() < 2 || m.terms(r).size() > parameters.longest_row) continue;
            if (const auto* t = best_column(m, r, slack)) found.add(substitution(m, r, *t));
        }
    }

    /// Whether the row, read as an equation, can eliminate the column of `t`.
    static bool can_go(const reducible& m, row r, const term& t, const margins& slack) {
        double largest = 0.0;
        for (const auto& other : m.terms(r))
            largest = std::max(largest, std::abs(other.coefficient));
        return m.entries(t.column).size() <= parameters.longest_column && !has_variable_bound(m, r, t.column) &&
               is_pivot(m, t, largest) && is_determined(m, r, t, slack) && is_free(m, t.column, slack) &&
               fill(m, r, t.column) <= parameters.most_fill;
    }

private:
    /// Whether a row other than `r` bounds a continuous column by an integer variable.
    static bool has_variable_bound(const reducible& m, row r, variable x) {
        if (m.is_integer(x)) return false;
        return std::any_of(m.entries(x).begin(), m.entries(x).end(), [&](const column_entry& e) {
            const auto& terms = m.terms(e.at);
            return e.at != r && terms.size() == 2 && (m.is_integer(terms[0].column) || m.is_integer(terms[1].column));
        });
    }

    /// The shortest column that the row can eliminate, or null.
    static const term* best_column(const reducible& m, row r, const margins& slack) {
        const term* best = nullptr;
        for (const auto& t : m.terms(r)) {
            if (best && m.entries(best->column).size() <= m.entries(t.column).size()) continue;
            if (loses_digits(m, t.column, m.lower(r) / t.coefficient)) continue;
            if (stays_integral(m, r, t, m.lower(r), slack) && can_go(m, r, t, slack)) best = &t;
        }
        return best;
    }

    /// Whether the coefficient is large enough to divide by.
    static bool is_pivot(const reducible& m, const term& t, double largest_in_row) {
        const auto is_far_larger = [&](const column_entry& e) {
            return std::abs(t.coefficient) < parameters.least_pivot * std::abs(e.coefficient);
        };
        const auto& entries = m.entries(t.column);
        return std::abs(t.coefficient) >= parameters.least_pivot * largest_in_row &&
               std::none_of(entries.begin(), entries.end(), is_far_larger);
    }

    static bool is_free(const reducible& m, variable x, const margins& slack) {
        bool from_below = m.lower(x) == -infinity;
        bool from_above = m.upper(x) == infinity;
        for (const auto& e : m.entries(x)) {
            if (from_below && from_above) return true;
            if (m.terms(e.at).size() > parameters.longest_row) continue;
            const auto implied = implied_by(m, e.at, m.activity(e.at), {x, e.coefficient});
            from_below = from_below || implies_lower(m, x, implied.lower, slack);
            from_above = from_above || implies_upper(m, x, implied.upper, slack);
        }
        return from_below && from_above;
    }

    /// The number of terms that the elimination adds to the model.
    static std::ptrdiff_t fill(const reducible& m, row r, variable x) {
        std::ptrdiff_t grown = -static_cast<std::ptrdiff_t>(m.terms(r).size());
        for (const auto& e : m.entries(x)) {
            if (e.at == r) continue;
            --grown;
            for (const auto& t : m.terms(r))
                grown += t.column != x && m.coefficient(e.at, t.column) == 0.0 ? 1 : 0;
        }
        return grown;
    }

    static proposal substitution(const reducible& m, row r, const term& gone) {
        const auto constant = quotient_for(m, gone.column, m.lower(r), gone.coefficient);
        const double in_row = m.is_integer(gone.column) ? 0.0 : m.noise(r) / std::abs(gone.coefficient);
        substitute_column s{gone.column, {}, constant.value, constant.noise + in_row};
        proposal p{{}, {}, {gone.column}};
        for (const auto& t : m.terms(r))
            if (t.column != gone.column) {
                const auto factor = quotient_for(m, gone.column, -t.coefficient, gone.coefficient);
                s.terms.push_back({t.column, factor.value});
                s.noise += factor.noise * m.size(t.column);
            }
        for (const auto& e : m.entries(gone.column))
            p.rows.push_back(e.at);
        p.steps = {remove_row{r}, std::move(s)};
        return p;
    }
};

} // namespace optpipe::milp::presolving
