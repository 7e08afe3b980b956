#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// An equation of two columns takes one of them away. An integer goes only where every integer value of the other gives
/// it one.
struct doubleton_equations {
    static constexpr std::string_view name = "doubleton equations";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || m.terms(r).size() != 2 || !m.is_equation(r)) continue;
            const auto& a = m.terms(r)[0];
            const auto& b = m.terms(r)[1];
            const bool shorter_first = m.entries(a.column).size() <= m.entries(b.column).size();
            const auto& first = shorter_first ? a : b;
            const auto& second = shorter_first ? b : a;
            if (can_go(m, r, first, second, slack))
                found.add(substitution(m, r, first, second));
            else if (can_go(m, r, second, first, slack))
                found.add(substitution(m, r, second, first));
        }
    }

private:
    static bool can_go(const reducible& m, row r, const term& gone, const term& kept, const margins& slack) {
        constexpr double largest_ratio = 1e3;
        constexpr std::size_t most_entries = 500;
        const double ratio = kept.coefficient / gone.coefficient;
        if (std::abs(ratio) > largest_ratio || std::abs(ratio) < 1.0 / largest_ratio) return false;
        if (m.entries(gone.column).size() > most_entries) return false;
        if (!m.is_integer(gone.column)) return true;
        return m.is_integer(kept.column) && slack.is_whole(ratio) && slack.is_whole(m.lower(r) / gone.coefficient);
    }

    static proposal substitution(const reducible& m, row r, const term& gone, const term& kept) {
        const double constant = m.lower(r) / gone.coefficient;
        const double factor = -kept.coefficient / gone.coefficient;
        double lower = (m.lower(gone.column) - constant) / factor;
        double upper = (m.upper(gone.column) - constant) / factor;
        if (factor < 0.0) std::swap(lower, upper);
        return {{bound_column{kept.column, lower, upper},
                 substitute_column{gone.column, {{kept.column, factor}}, constant}, remove_row{r}},
                {r},
                {gone.column, kept.column}};
    }
};

} // namespace optpipe::milp::presolving
