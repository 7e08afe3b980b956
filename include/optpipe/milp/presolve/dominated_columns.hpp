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
#include <vector>

namespace optpipe::milp::presolving {

/// x dominates y if the step x + 1, y - 1 never costs more and violates no row. A dominated y goes to its lower bound
/// if only rows bound x from above (Gamrath et al. 2015).
class dominated_columns {
public:
    static constexpr std::string_view name = "dominated columns";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        std::size_t work = 0;
        std::vector<char> gone(m.all_variables().size(), 0);
        for (const variable x : m.all_variables()) {
            if (!m.has(x) || gone[x.position()] != 0 || !m.has_changed(x, since) || work > parameters.domination_work)
                continue;
            if (can_grow(m, x, slack, work)) look_for_dominated(m, x, work, gone, found);
        }
    }

private:
    static bool can_grow(const reducible& m, variable x, const margins& slack, std::size_t& work) {
        if (m.upper(x) == infinity) return true;
        return std::any_of(m.entries(x).begin(), m.entries(x).end(), [&](const column_entry& e) {
            if (m.terms(e.at).size() > parameters.longest_domination_row || work > parameters.domination_work)
                return false;
            work += m.terms(e.at).size();
            const auto implied = implied_by(m, e.at, m.activity(e.at), {x, e.coefficient});
            return implied.upper <= m.upper(x) + slack.noise_at(m.upper(x));
        });
    }

    /// Searches only the shortest row that limits x, because each such row has every dominated column. A proposal only
    /// requires x, because dominations survive the fixing of other columns.
    static void look_for_dominated(const reducible& m, variable x, std::size_t& work, std::vector<char>& gone,
                                   proposal_list& found) {
        const column_entry* shortest = nullptr;
        for (const auto& e : m.entries(x)) {
            const bool is_lock = e.coefficient > 0.0 ? m.upper(e.at) < infinity : m.lower(e.at) > -infinity;
            if (is_lock && (!shortest || m.terms(e.at).size() < m.terms(shortest->at).size())) shortest = &e;
        }
        if (!shortest || m.terms(shortest->at).size() > parameters.longest_domination_row) return;
        for (const auto& t : m.terms(shortest->at)) {
            const variable y = t.column;
            if (y == x || gone[y.position()] != 0 || !std::isfinite(m.lower(y)) || !dominates(m, x, y, work)) continue;
            gone[y.position()] = 1;
            found.add(fix_column{y, m.lower(y)});
        }
    }

    static bool dominates(const reducible& m, variable x, variable y, std::size_t& work) {
        work += m.entries(x).size() + m.entries(y).size();
        if (m.cost(x) > m.cost(y) || (m.is_integer(x) && !m.is_integer(y))) return false;
        const auto allows = [&](row r, double of_x, double of_y) {
            return (m.upper(r) == infinity || of_x <= of_y) && (m.lower(r) == -infinity || of_x >= of_y);
        };
        for (const auto& e : m.entries(x))
            if (!allows(e.at, e.coefficient, m.coefficient(e.at, y))) return false;
        for (const auto& e : m.entries(y))
            if (!allows(e.at, m.coefficient(e.at, x), e.coefficient)) return false;
        return true;
    }
};

} // namespace optpipe::milp::presolving
