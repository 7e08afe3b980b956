#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"
#include "optpipe/milp/presolve/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// Removes one of two rows that are multiples of each other, and keeps the tighter bounds.
struct duplicate_rows {
    static constexpr std::string_view name = "duplicate rows";

    void operator()(const reducible& m, std::uint32_t, const margins& slack, proposal_list& found) const {
        support_groups<row> groups;
        for (const row r : m.all_rows()) {
            if (!m.has(r) || m.terms(r).size() < 2) continue;
            support_hash hash;
            for (const auto& t : m.terms(r))
                hash.add(t.column.value());
            groups.add(hash.value(), r, [&](row first, row second) {
                const auto factor = ratio(m, first, second, slack);
                if (factor.value != 0.0) found.add(merged(m, first, second, factor));
                return factor.value != 0.0;
            });
        }
    }

private:
    /// The factor in second = factor * first; 0 if there is none. The factor's noise is the error of an activity
    /// computed through the other row.
    static rounded ratio(const reducible& m, row first, row second, const margins& slack) {
        const auto& a = m.terms(first);
        const auto& b = m.terms(second);
        if (a.size() != b.size()) return {};
        rounded factor{b.front().coefficient / a.front().coefficient, 0.0};
        for (std::size_t i = 0; i < a.size(); ++i) {
            const double off = std::abs(std::fma(factor.value, a[i].coefficient, -b[i].coefficient));
            if (a[i].column != b[i].column || off > slack.equality.at(std::abs(b[i].coefficient))) return {};
            factor.noise += m.error_in_row(a[i].column, b[i].coefficient, off);
        }
        return slack.is_negligible(factor.noise) ? factor : rounded{};
    }

    static proposal merged(const reducible& m, row first, row second, const rounded& factor) {
        auto lower = quotient(m.lower(second), factor.value);
        auto upper = quotient(m.upper(second), factor.value);
        if (factor.value < 0.0) std::swap(lower, upper);
        const double own = m.noise(first);
        const double other =
            (m.noise(second) + factor.noise) / std::abs(factor.value) + std::max(lower.noise, upper.noise);
        const double low = std::max(lower.value, m.lower(first));
        const double up = std::min(upper.value, m.upper(first));
        const bool takes_over = low > m.lower(first) || up < m.upper(first);
        return {{bound_row{first, low, up, takes_over ? std::max(0.0, other - own) : 0.0}, remove_row{second}},
                {first, second},
                {}};
    }
};

} // namespace optpipe::milp::presolving
