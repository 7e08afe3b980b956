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

/// Turns a row of one column into bounds of that column.
struct singleton_rows {
    static constexpr std::string_view name = "singleton rows";

    void operator()(const reducible& m, std::uint32_t since, const margins&, proposal_list& found) const {
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
                found.add({{bound_column{t.column, lower.value, upper.value, noise}, remove_row{r}}, {r}, {}});
        }
    }

private:
    /// Whether an error of `noise` in x is negligible in all of its rows.
    static bool is_negligible(const reducible& m, variable x, double noise) {
        return std::all_of(m.entries(x).begin(), m.entries(x).end(), [&](const column_entry& e) {
            return std::abs(e.coefficient) * noise <= parameters.negligible_noise;
        });
    }
    /// Fixes x at the value of an equation, if that value may lie within the bounds; else proposes bounds.
    static reduction fix(const reducible& m, variable x, double value, double noise) {
        const double nearest = std::clamp(value, m.lower(x), std::max(m.lower(x), m.upper(x)));
        if (std::abs(nearest - value) > noise || !is_negligible(m, x, noise))
            return bound_column{x, value, value, noise};
        return fix_column{x, nearest, noise};
    }
};

} // namespace optpipe::milp::presolving
