#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/propagation.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>

namespace optpipe::milp::presolving {

/// Shrinks a binary's big M (the coefficient that switches a row off). `tried` has the tighter bounds that follow from
/// b = value. The coefficient shrinks by the gap between the row's side and its greatest activity in `tried`.
struct big_m_tightening {
    static void propose(const reducible& m, variable b, double value, const propagation& tried, const margins& slack,
                        proposal_list& found) {
        for (const auto& e : m.entries(b)) {
            const bool has_upper = m.upper(e.at) < infinity;
            if (has_upper == (m.lower(e.at) > -infinity)) continue;
            const double sign = has_upper ? 1.0 : -1.0;
            // Only the value of b that leaves more room can switch the row off.
            if ((sign * e.coefficient > 0.0) == (value == 0.0)) tighten(m, b, e, sign, tried, slack, found);
        }
    }

private:
    /// The row is read as `sign` · row ≤ side.
    static void tighten(const reducible& m, variable b, const column_entry& e, double sign, const propagation& tried,
                        const margins& slack, proposal_list& found) {
        const auto range = activity_without(m, e.at, b, tried);
        const double most = sign > 0.0 ? range.upper() : -range.lower();
        const double side = sign > 0.0 ? m.upper(e.at) : -m.lower(e.at);
        if (!std::isfinite(most)) return;
        const double a = sign * e.coefficient;
        // The row stays the same at b = 1 (if a > 0) or b = 0 (if a < 0). At the opposite value of b, the terms without
        // b can just reach the side.
        const auto room = difference(side, std::max(a, 0.0));
        const auto size = difference(most, room.value);
        const double gap = std::abs(a) - size.value;
        if (gap <= parameters.least_change_behind_binary * std::abs(a) || gap <= slack.excess_at(side)) return;
        const double smaller = a > 0.0 ? size.value : -size.value;
        const double moved = a > 0.0 ? most : side;
        const double noise = range.noise() + room.noise + size.noise;
        found.add({{set_coefficient{e.at, b, sign * smaller},
                    sign > 0.0 ? bound_row{e.at, -infinity, moved, noise} : bound_row{e.at, -moved, infinity, noise}},
                   {e.at},
                   {}});
    }
    static activity_range activity_without(const reducible& m, row r, variable b, const propagation& tried) {
        activity_range range;
        for (const auto& t : m.terms(r))
            if (t.column != b) range.add(t.coefficient, tried.lower(t.column), tried.upper(t.column));
        return range;
    }
};

} // namespace optpipe::milp::presolving
