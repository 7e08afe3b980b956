#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace optpipe::milp::presolving {

/// Numbers of rows that limit a column's increase (`up`) and decrease (`down`).
struct lock_counts {
    std::size_t up = 0;
    std::size_t down = 0;
};

[[nodiscard]] inline lock_counts locks_of(const reducible& m, variable x) {
    lock_counts locks;
    for (const auto& e : m.entries(x)) {
        const bool is_bounded_above = e.coefficient > 0.0 ? m.upper(e.at) < infinity : m.lower(e.at) > -infinity;
        const bool is_bounded_below = e.coefficient > 0.0 ? m.lower(e.at) > -infinity : m.upper(e.at) < infinity;
        locks.up += is_bounded_above ? 1 : 0;
        locks.down += is_bounded_below ? 1 : 0;
    }
    return locks;
}

/// Fixes a column at its cheapest bound if no row prevents the move. If the cheapest bound is infinite and the cost is
/// 0, the column and its rows are removed. If the cheapest bound is infinite and the column has a cost, the model is
/// unbounded or infeasible.
struct dual_fixing {
    static constexpr std::string_view name = "dual fixing";

    void operator()(const reducible& m, std::uint32_t since, const margins&, proposal_list& found) const {
        for (const variable x : m.all_variables()) {
            if (!m.has(x) || !m.has_changed(x, since)) continue;
            const auto locks = locks_of(m, x);
            if (locks.down == 0 && m.cost(x) >= 0.0)
                push(m, x, false, found);
            else if (locks.up == 0 && m.cost(x) <= 0.0)
                push(m, x, true, found);
        }
    }

private:
    static void push(const reducible& m, variable x, bool upwards, proposal_list& found) {
        const double bound = upwards ? m.upper(x) : m.lower(x);
        if (std::isfinite(bound))
            found.add({{fix_column{x, bound}}, {}, {x}});
        else if (m.cost(x) != 0.0)
            found.add({{give_up{verdict::unbounded}}, {}, {x}});
        else
            found.add({{release_column{x, upwards}}, {}, {x}});
    }
};

} // namespace optpipe::milp::presolving
