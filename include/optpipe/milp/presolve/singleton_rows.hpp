#pragma once

#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"

#include <cstdint>
#include <string_view>
#include <utility>

namespace optpipe::milp::presolving {

/// A row of one column is a bound of that column.
struct singleton_rows {
    static constexpr std::string_view name = "singleton rows";

    void operator()(const reducible& m, std::uint32_t since, const margins&, proposal_list& found) const {
        for (const row r : m.all_rows()) {
            if (!m.has(r) || !m.has_changed(r, since) || m.terms(r).size() != 1) continue;
            const auto& t = m.terms(r).front();
            double lower = m.lower(r) / t.coefficient;
            double upper = m.upper(r) / t.coefficient;
            if (t.coefficient < 0.0) std::swap(lower, upper);
            found.add({{bound_column{t.column, lower, upper}, remove_row{r}}, {r}, {}});
        }
    }
};

} // namespace optpipe::milp::presolving
