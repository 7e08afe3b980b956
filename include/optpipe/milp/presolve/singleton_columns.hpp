#pragma once

#include "optpipe/milp/presolve/implied_bounds.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cmath>
#include <cstdint>
#include <string_view>

namespace optpipe::milp::presolving {

/// Reduces continuous columns that occur in only one row. In an equation, the column's cost moves to the other columns.
/// A column without a cost is replaced by wider bounds of the row. If only the row limits how cheap a column can be,
/// the row becomes an equation.
struct singleton_columns {
    static constexpr std::string_view name = "singleton columns";
    bool dual_reductions = true;
    bool many_to_one = true;

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const variable x : m.all_variables())
            if (m.has(x) && m.has_changed(x, since) && !m.is_integer(x) && m.entries(x).size() == 1)
                look_at(m, x, slack, found);
    }

private:
    void look_at(const reducible& m, variable x, const margins& slack, proposal_list& found) const {
        const row r = m.entries(x).front().at;
        if (!is_pivot(m, r, x)) return;
        if (m.cost(x) == 0.0 && (many_to_one || m.is_equation(r)))
            found.add({{absorb_column{x, r}}, {r}, {x}});
        else if (m.is_equation(r) && is_determined(m, r, {x, m.coefficient(r, x)}, slack))
            found.add({{move_cost{x, r}, absorb_column{x, r}}, {r}, {x}});
        else if (dual_reductions && m.cost(x) != 0.0)
            look_for_equation(m, x, r, slack, found);
    }

    /// Whether the coefficient is large enough to divide by.
    static bool is_pivot(const reducible& m, row r, variable x) {
        double largest = 0.0;
        for (const auto& t : m.terms(r))
            largest = std::max(largest, std::abs(t.coefficient));
        return std::abs(m.coefficient(r, x)) >= parameters.least_singleton_pivot * largest;
    }

    static void look_for_equation(const reducible& m, variable x, row r, const margins& slack, proposal_list& found) {
        const double a = m.coefficient(r, x);
        const bool shrinks = m.cost(x) > 0.0;
        const double side = shrinks == (a > 0.0) ? m.lower(r) : m.upper(r);
        if (!std::isfinite(side)) return;
        const auto implied = implied_by(m, r, m.activity(r), {x, a});
        const bool is_kept_by_row =
            shrinks ? implies_lower(m, x, implied.lower, slack) : implies_upper(m, x, implied.upper, slack);
        if (!is_kept_by_row) return;
        found.add({{bound_row{r, side, side, error_at_side(m, {x, a}, implied, !shrinks)}}, {r}, {x}});
    }
};

} // namespace optpipe::milp::presolving
