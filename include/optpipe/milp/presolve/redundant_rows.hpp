#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Compares rows with the bounds of their columns. A row or side that the bounds imply is removed. A row that needs
/// each column at a bound fixes these columns. A row that the bounds can't satisfy proves infeasibility.
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
        const double noise = m.noise(r) + range.noise(lower, upper);
        if (least > upper + slack.excess_at(upper) + noise || most < lower - slack.excess_at(lower) - noise ||
            lower > upper + slack.excess_at(lower) + noise)
            return found.add(give_up{verdict::infeasible});
        const bool is_empty = m.terms(r).empty();
        const bool keeps_lower = lower > -infinity && least < lower - slack.noise_at(lower) - noise;
        const bool keeps_upper = upper < infinity && most > upper + slack.noise_at(upper) + noise;
        if (is_empty || (!keeps_lower && !keeps_upper)) return found.add({{remove_row{r}}, {r}, {}});
        if (upper < infinity && least >= upper - slack.noise_at(upper)) return force(m, r, true, upper - least, found);
        if (lower > -infinity && most <= lower + slack.noise_at(lower)) return force(m, r, false, most - lower, found);
        if ((!keeps_lower && lower > -infinity) || (!keeps_upper && upper < infinity))
            found.add({{bound_row{r, keeps_lower ? lower : -infinity, keeps_upper ? upper : infinity}}, {r}, {}});
    }

    /// Fixes every column at the bound where the row's activity is least (or greatest). Fixed values may be off by the
    /// row's rounding errors, plus any positive `room`.
    static void force(const reducible& m, row r, bool at_least, double room, proposal_list& found) {
        const double noise = m.noise(r) + m.activity(r).noise(m.lower(r), m.upper(r)) + std::max(room, 0.0);
        proposal p{{}, {r}, {}};
        for (const auto& t : m.terms(r)) {
            const bool at_lower = at_least == (t.coefficient > 0.0);
            const double value = at_lower ? m.lower(t.column) : m.upper(t.column);
            p.steps.push_back(bound_column{t.column, value, value, noise / std::abs(t.coefficient)});
        }
        found.add(std::move(p));
    }
};

} // namespace optpipe::milp::presolving
