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

/// Turns a row with one column into bounds, except for huge bounds.
struct singleton_rows {
    static constexpr std::string_view name = "singleton rows";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || m.terms(r).size() != 1) continue;
            const auto& t = m.terms(r).front();
            auto lower = quotient(m.lower(r), t.coefficient);
            auto upper = quotient(m.upper(r), t.coefficient);
            if (t.coefficient < 0.0) std::swap(lower, upper);
            const double noise = std::max(lower.noise, upper.noise) + m.noise(r) / std::abs(t.coefficient);
            if (m.is_equation(r) && !m.is_integer(t.column) && noise > 0.0)
                found.add({{fix(m, t.column, lower.value, noise), remove_row{r}}, {r}, {t.column}});
            else
                move_near_sides(m, r, t, {t.column, lower.value, upper.value, noise}, slack, found);
        }
    }

private:
    /// Turns the sides into bounds of the column. Sides that may just mean "no limit" stay in the row
    /// (`margins::is_far_above`).
    static void move_near_sides(const reducible& m, row r, const term& t, bound_column b, const margins& slack,
                                proposal_list& found) {
        const bool far_below = margins::is_far_below(b.lower, std::min(b.upper, m.upper(t.column)));
        const bool far_above = margins::is_far_above(b.upper, std::max(b.lower, m.lower(t.column)));
        bound_row rest{r, m.lower(r), m.upper(r)};
        const bool flips = t.coefficient < 0.0;
        if (!(flips ? far_above : far_below)) rest.lower = -infinity;
        if (!(flips ? far_below : far_above)) rest.upper = infinity;
        if (rest.lower == m.lower(r) && rest.upper == m.upper(r)) return;
        if (far_below) b.lower = -infinity;
        if (far_above) b.upper = infinity;
        b.grace = slack.grace(m.lower(r), m.upper(r), t.coefficient, b.noise);
        if (far_below || far_above)
            found.add({{b, rest}, {r}, {}});
        else
            found.add({{b, remove_row{r}}, {r}, {}});
    }
    /// Whether an error of `noise` in x is negligible in all of its rows.
    static bool is_negligible(const reducible& m, variable x, double noise) {
        return std::all_of(m.entries(x).begin(), m.entries(x).end(), [&](const column_entry& e) {
            return std::abs(e.coefficient) * noise <= parameters.negligible_noise;
        });
    }
    /// Fixes x at the value that an equation gives. Sets only bounds if the value is out of bounds, or if an error of
    /// `noise` in x matters.
    static reduction fix(const reducible& m, variable x, double value, double noise) {
        const double nearest = std::clamp(value, m.lower(x), std::max(m.lower(x), m.upper(x)));
        if (std::abs(nearest - value) > noise || !is_negligible(m, x, noise))
            return bound_column{x, value, value, noise};
        return fix_column{x, nearest, noise};
    }
};

} // namespace optpipe::milp::presolving
