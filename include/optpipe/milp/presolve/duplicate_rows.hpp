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

/// Of two rows that are multiples of each other, one goes, and the other has the bounds of both.
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
                const double factor = ratio(m, first, second, slack);
                if (factor != 0.0) found.add(merged(m, first, second, factor));
                return factor != 0.0;
            });
        }
    }

private:
    /// second = ratio * first; 0 if it isn't.
    static double ratio(const reducible& m, row first, row second, const margins& slack) {
        const auto& a = m.terms(first);
        const auto& b = m.terms(second);
        if (a.size() != b.size()) return 0.0;
        const double factor = b.front().coefficient / a.front().coefficient;
        for (std::size_t i = 0; i < a.size(); ++i) {
            const double scaled = factor * a[i].coefficient;
            const double noise = slack.equality.at(std::abs(scaled));
            if (a[i].column != b[i].column || std::abs(scaled - b[i].coefficient) > noise) return 0.0;
        }
        return factor;
    }

    static proposal merged(const reducible& m, row first, row second, double factor) {
        double lower = m.lower(second) / factor;
        double upper = m.upper(second) / factor;
        if (factor < 0.0) std::swap(lower, upper);
        lower = std::max(lower, m.lower(first));
        upper = std::min(upper, m.upper(first));
        return {{bound_row{first, lower, upper}, remove_row{second}}, {first, second}, {}};
    }
};

} // namespace optpipe::milp::presolving
