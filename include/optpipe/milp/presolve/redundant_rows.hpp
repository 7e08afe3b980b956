#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Rows that their columns' bounds already meet go, and so does the one side that is; rows that the bounds can only
/// just meet fix all of their columns; rows that they can't meet prove that there is no solution.
struct redundant_rows {
    static constexpr std::string_view name = "redundant rows";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows())
            if (m.has(r) && m.has_changed(r, since)) look_at(m, r, slack, found);
    }

private:
    static void look_at(const reducible& m, row r, const margins& slack, proposal_list& found) {
        const double lower = m.lower(r);
        const double upper = m.upper(r);
        const auto range = m.activity(r);
        const double least = range.lower();
        const double most = range.upper();
        if (least > upper + slack.excess_at(upper) || most < lower - slack.excess_at(lower) ||
            lower > upper + slack.excess_at(lower))
            return found.add(give_up{verdict::infeasible});
        const bool keeps_lower = lower > -infinity && least < lower - slack.noise_at(lower);
        const bool keeps_upper = upper < infinity && most > upper + slack.noise_at(upper);
        if (!keeps_lower && !keeps_upper) return found.add({{remove_row{r}}, {r}, {}});
        if (upper < infinity && least >= upper - slack.noise_at(upper)) return force(m, r, true, found);
        if (lower > -infinity && most <= lower + slack.noise_at(lower)) return force(m, r, false, found);
        if ((!keeps_lower && lower > -infinity) || (!keeps_upper && upper < infinity))
            found.add({{bound_row{r, keeps_lower ? lower : -infinity, keeps_upper ? upper : infinity}}, {r}, {}});
    }

    /// Every column at the end where the row is least, or where it is greatest.
    static void force(const reducible& m, row r, bool at_least, proposal_list& found) {
        proposal p{{}, {r}, {}};
        for (const auto& t : m.terms(r)) {
            const double value = at_least == (t.coefficient > 0.0) ? m.lower(t.column) : m.upper(t.column);
            p.steps.push_back(bound_column{t.column, value, value});
        }
        found.add(std::move(p));
    }
};

} // namespace optpipe::milp::presolving
