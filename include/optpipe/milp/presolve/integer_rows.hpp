#pragma once

#include "optpipe/milp/presolve/parameters.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace optpipe::milp::presolving {

/// A row of integers whose coefficients have a common divisor only takes multiples of it, so its bounds can be rounded.
struct integer_rows {
    static constexpr std::string_view name = "integer rows";

    void operator()(const reducible& m, std::uint32_t since, const margins& slack, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || m.terms(r).empty()) continue;
            const double divisor = common_divisor(m, r, slack);
            if (divisor == 0.0) continue;
            const double off = slack.grace(m.lower(r), m.upper(r), divisor, m.noise(r) / divisor);
            const double lower = divisor * margins::rounded_up(m.lower(r) / divisor, off);
            const double upper = divisor * margins::rounded_down(m.upper(r) / divisor, off);
            if (lower > upper)
                found.add({{give_up{verdict::infeasible}}, {r}, {}});
            else if (lower > m.lower(r) + slack.excess_at(lower) || upper < m.upper(r) - slack.excess_at(upper))
                found.add({{bound_row{r, lower, upper}}, {r}, {}});
        }
    }

private:
    /// 0 if a column isn't an integer, or if the coefficients aren't integral multiples of any of the tried units.
    static double common_divisor(const reducible& m, row r, const margins& slack) {
        constexpr double tenth = 0.1;
        constexpr double hundredth = 0.01;
        double least = infinity;
        for (const auto& t : m.terms(r)) {
            if (!m.is_integer(t.column)) return 0.0;
            least = std::min(least, std::abs(t.coefficient));
        }
        for (const double unit : {1.0, least, least / 2.0, 0.5, tenth, hundredth}) {
            std::int64_t divisor = 0;
            bool is_multiple = true;
            for (const auto& t : m.terms(r)) {
                const double multiple = std::abs(t.coefficient) / unit;
                is_multiple = is_multiple && multiple < parameters.largest_multiple && slack.is_integral(multiple) &&
                              multiple > 0.5;
                if (!is_multiple) break;
                divisor = std::gcd(divisor, static_cast<std::int64_t>(std::llround(multiple)));
            }
            if (is_multiple) return unit * static_cast<double>(divisor);
        }
        return 0.0;
    }
};

} // namespace optpipe::milp::presolving
