#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/tableau.hpp"

#include <cmath>
#include <cstddef>

namespace optpipe::milp::lp {

/// Changes nonbasic costs by random amounts that make reduced costs more dual feasible. Perturbed costs break ties in
/// the dual ratio test, and make the objective grow with every step.
inline void perturb_costs(tableau& t, double size, random_numbers& random) {
    for (int j = 0; j < t.program.variables(); ++j) {
        const auto s = t.status[at(j)];
        if (s == basis_status::basic || s == basis_status::free_at_zero || t.is_fixed(j)) continue;
        const double amount = size * (1.0 + std::abs(t.program.cost[at(j)])) * (1.0 + random.share());
        const double signed_amount = s == basis_status::at_lower ? amount : -amount;
        t.cost[at(j)] += signed_amount;
        t.reduced_cost[at(j)] += signed_amount;
    }
}

/// Widens the bounds of basic variables by random amounts, so that the primal method can move.
inline void perturb_bounds(tableau& t, double size, random_numbers& random) {
    for (const int j : t.head) {
        t.lower[at(j)] -= size * (1.0 + std::abs(t.lower[at(j)])) * (1.0 + random.share());
        t.upper[at(j)] += size * (1.0 + std::abs(t.upper[at(j)])) * (1.0 + random.share());
    }
}

} // namespace optpipe::milp::lp
