#pragma once

#include "optpipe/milp/presolve/big_m_tightening.hpp"
#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/propagation.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace optpipe::milp::presolving {

/// Tries a binary at 0 and at 1, and uses the bounds that propagation derives. A value that leads to a contradiction
/// fixes the binary at the other value. A bound that follows from both values always holds. A column fixed by both
/// values becomes a function of the binary. Coefficients in rows that the binary switches off may shrink.
struct probing {
    static constexpr std::string_view name = "probing";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        propagation tried{m, slack};
        for (const variable b : candidates(m, since)) {
            if (tried.work() > parameters.probing_work) break;
            probe(m, b, tried, slack, found);
            tried.undo();
        }
    }

private:
    static std::vector<variable> candidates(const reducible& m, std::uint32_t since) {
        std::vector<variable> binaries;
        for (const variable x : m.all_variables())
            if (m.has(x) && m.is_binary(x) && m.has_changed(x, since) && !m.entries(x).empty()) binaries.push_back(x);
        std::stable_sort(binaries.begin(), binaries.end(),
                         [&](variable a, variable b) { return m.entries(a).size() > m.entries(b).size(); });
        return binaries;
    }

    struct bounds_of {
        variable x;
        double lower;
        double upper;
    };

    static void probe(const reducible& m, variable b, propagation& tried, const margins& slack, proposal_list& found) {
        const bool can_be_0 = tried.assume(b, 0.0);
        if (can_be_0) big_m_tightening::propose(m, b, 0.0, tried, slack, found);
        std::vector<bounds_of> at_0;
        for (const variable x : tried.changed())
            at_0.push_back({x, tried.lower(x), tried.upper(x)});
        tried.undo();
        const bool can_be_1 = tried.assume(b, 1.0);
        if (can_be_1) big_m_tightening::propose(m, b, 1.0, tried, slack, found);
        if (!can_be_0 && !can_be_1)
            found.add(give_up{verdict::infeasible});
        else if (!can_be_0)
            found.add(bound_column{b, 1.0, 1.0});
        else if (!can_be_1)
            found.add(bound_column{b, 0.0, 0.0});
        else
            for (const auto& from_0 : at_0)
                if (from_0.x != b && tried.has_changed(from_0.x)) compare(m, b, from_0, tried, found);
    }

    static void compare(const reducible& m, variable b, const bounds_of& at_0, const propagation& tried,
                        proposal_list& found) {
        const variable x = at_0.x;
        const bool is_function = at_0.lower == at_0.upper && tried.lower(x) == tried.upper(x);
        if (is_function && m.is_integer(x) && at_0.lower != tried.lower(x))
            return found.add({{substitute_column{x, {{b, tried.lower(x) - at_0.lower}}, at_0.lower}}, {}, {b, x}});
        const double lower = std::min(at_0.lower, tried.lower(x));
        const double upper = std::max(at_0.upper, tried.upper(x));
        const double range = m.upper(x) - m.lower(x);
        const double gain = std::isfinite(range) && !m.is_integer(x) ? parameters.least_gain * range : 0.0;
        if (lower > m.lower(x) + gain || upper < m.upper(x) - gain) found.add(bound_column{x, lower, upper});
    }
};

} // namespace optpipe::milp::presolving
