#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Converts a problem to a model to be minimized, with the bounds at the root. Used for neighbourhood searches.
[[nodiscard]] inline model model_of(const problem& p, const domains& d) {
    model m;
    for (std::size_t j = 0; j < p.columns(); ++j) {
        const auto x = m.add_variable(d.at_root(lower_of(j)), -d.at_root(upper_of(j)),
                                      p.is_integer(j) ? domain::integer : domain::continuous);
        m.set_cost(x, p.cost[j]);
    }
    std::vector<term> terms;
    for (std::size_t i = 0; i < p.rows(); ++i) {
        terms.clear();
        for (const auto& e : p.row_entries(i))
            terms.push_back({variable{e.column}, e.coefficient});
        m.add_row(p.row_lower[i], terms, p.row_upper[i]);
    }
    return m;
}

} // namespace optpipe::milp::search
