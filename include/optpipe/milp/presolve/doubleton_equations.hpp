#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Uses an equation of two columns to eliminate one of them. An integer variable is eliminated only if its value is
/// always integral.
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
                found.add(substitution(m, r, first, second, slack));
            else if (can_go(m, r, second, first, slack))
                found.add(substitution(m, r, second, first, slack));
        }
    }

private:
    static bool can_go(const reducible& m, row r, const term& gone, const term& kept, const margins& slack) {
        const double ratio = kept.coefficient / gone.coefficient;
        if (std::abs(ratio) > parameters.largest_ratio || std::abs(ratio) < 1.0 / parameters.largest_ratio)
            return false;
        if (m.entries(gone.column).size() > parameters.longest_doubleton_column) return false;
        if (loses_digits(m, gone.column, m.lower(r) / gone.coefficient)) return false;
        if (!is_determined(m, r, gone, slack)) return false;
        return stays_integral(m, r, gone, m.lower(r), slack);
    }

    /// The error of the divisor `factor`, converted to an error of the dividend. The dividend is `below` or `above`,
    /// whichever has the larger finite magnitude.
    static double relative_noise(const rounded& factor, const rounded& below, const rounded& above) {
        const auto finite = [](double v) { return std::isfinite(v) ? std::abs(v) : 0.0; };
        return factor.noise / std::abs(factor.value) * std::max(finite(below.value), finite(above.value));
    }

    static proposal substitution(const reducible& m, row r, const term& gone, const term& kept, const margins& slack) {
        const auto constant = quotient_for(m, gone.column, m.lower(r), gone.coefficient);
        const auto factor = quotient_for(m, gone.column, -kept.coefficient, gone.coefficient);
        const auto below = difference(m.lower(gone.column), constant.value);
        const auto above = difference(m.upper(gone.column), constant.value);
        auto lower = quotient(below.value, factor.value);
        auto upper = quotient(above.value, factor.value);
        if (factor.value < 0.0) std::swap(lower, upper);
        const double in_row = m.is_integer(gone.column) ? 0.0 : m.noise(r) / std::abs(gone.coefficient);
        const double of_constant = in_row + constant.noise;
        const double of_bounds =
            of_constant + std::max(below.noise, above.noise) + relative_noise(factor, below, above);
        const double noise = of_bounds / std::abs(factor.value) + std::max(lower.noise, upper.noise);
        const double grace = slack.grace(m.lower(gone.column), m.upper(gone.column), factor.value, noise);
        return {{bound_column{kept.column, lower.value, upper.value, noise, grace},
                 substitute_column{gone.column,
                                   {{kept.column, factor.value}},
                                   constant.value,
                                   of_constant + factor.noise * m.size(kept.column)},
                 remove_row{r}},
                {r},
                {gone.column, kept.column}};
    }
};

} // namespace optpipe::milp::presolving
