#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"
#include "optpipe/milp/presolve/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace optpipe::milp::presolving {

/// Merges two columns that are multiples of each other in rows and in cost. Every value of the merged column must be a
/// sum of values of the two columns.
struct duplicate_columns {
    static constexpr std::string_view name = "duplicate columns";

    void operator()(const reducible& m, std::uint32_t, const margins& slack, proposal_list& found) const {
        support_groups<variable> groups;
        for (const variable x : m.all_variables()) {
            if (!m.has(x) || m.entries(x).empty()) continue;
            support_hash hash;
            for (const auto& e : m.entries(x))
                hash.add(e.at.value());
            groups.add(hash.value(), x, [&](variable first, variable second) {
                return propose(m, first, second, slack, found) || propose(m, second, first, slack, found);
            });
        }
    }

private:
    static bool propose(const reducible& m, variable kept, variable merged, const margins& slack,
                        proposal_list& found) {
        const double factor = ratio(m, kept, merged, slack);
        if (factor == 0.0 || !covers(m, kept, merged, factor, slack)) return false;
        found.add({{merge_columns{kept, merged, factor}}, {}, {kept, merged}});
        return true;
    }

    /// The factor in second = factor * first; 0 if there is none.
    static double ratio(const reducible& m, variable first, variable second, const margins& slack) {
        const auto& entries = m.entries(first);
        if (entries.size() != m.entries(second).size()) return 0.0;
        double factor = m.coefficient(entries.front().at, second) / entries.front().coefficient;
        if (m.is_integer(first) && slack.is_integral(factor)) factor = std::round(factor);
        const auto agrees = [&](double a, double b) {
            const double off = std::abs(std::fma(factor, a, -b));
            return off <= slack.equality.at(std::max(std::abs(factor * a), std::abs(b))) &&
                   slack.is_negligible(m.error_in_row(second, b, off));
        };
        const bool is_same = agrees(m.cost(first), m.cost(second)) &&
                             std::all_of(entries.begin(), entries.end(), [&](const column_entry& e) {
                                 return agrees(e.coefficient, m.coefficient(e.at, second));
                             });
        return is_same ? factor : 0.0;
    }

    /// After merging, the kept column stands for a sum. Returns whether values of the two columns can reach every value
    /// of the sum.
    static bool covers(const reducible& m, variable kept, variable merged, double factor, const margins& slack) {
        const double range = m.upper(kept) - m.lower(kept);
        if (!m.is_integer(merged)) return !m.is_integer(kept);
        if (!m.is_integer(kept)) return range >= std::abs(factor);
        return slack.is_integral(factor) && range >= std::abs(factor) - 1.0;
    }
};

} // namespace optpipe::milp::presolving
