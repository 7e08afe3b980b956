#pragma once

#include "optpipe/milp/presolve/free_columns.hpp"
#include "optpipe/milp/presolve/implied_bounds.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace optpipe::milp::presolving {

/// Turns a row into an equation if only this row stops a column's favourable move. The row is changed only if the new
/// equation can eliminate the column.
class tight_rows {
public:
    static constexpr std::string_view name = "tight rows";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const variable x : m.all_variables()) {
            if (!m.has(x) || !m.has_changed(x, since) || m.entries(x).size() > parameters.longest_column) continue;
            if (m.cost(x) >= 0.0) look_at(m, x, false, slack, found);
            if (m.cost(x) <= 0.0) look_at(m, x, true, slack, found);
        }
    }

private:
    static void look_at(const reducible& m, variable x, bool grows, const margins& slack, proposal_list& found) {
        const column_entry* lock = nullptr;
        for (const auto& e : m.entries(x)) {
            if (!std::isfinite(side_against(m, e, grows))) continue;
            if (lock) return;
            lock = &e;
        }
        if (!lock || m.is_equation(lock->at) || m.terms(lock->at).size() > parameters.longest_row) return;
        const auto implied = implied_by(m, lock->at, m.activity(lock->at), {x, lock->coefficient});
        const bool is_kept_by_row =
            grows ? implies_upper(m, x, implied.upper, slack) : implies_lower(m, x, implied.lower, slack);
        const double side = side_against(m, *lock, grows);
        if (!is_kept_by_row || !stays_integral(m, lock->at, {x, lock->coefficient}, side, slack)) return;
        if (m.terms(lock->at).size() > 2 && !free_columns::can_go(m, lock->at, {x, lock->coefficient}, slack)) return;
        const double error = error_of_equation(m, lock->at, {x, lock->coefficient}, side) +
                             error_at_side(m, {x, lock->coefficient}, implied, grows);
        found.add({{bound_row{lock->at, side, side, error}}, {lock->at}, {x}});
    }

    static double side_against(const reducible& m, const column_entry& e, bool grows) {
        return grows == (e.coefficient > 0.0) ? m.upper(e.at) : m.lower(e.at);
    }
};

} // namespace optpipe::milp::presolving
