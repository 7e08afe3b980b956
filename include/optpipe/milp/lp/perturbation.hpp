#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/lp/tableau.hpp"

#include <cmath>
#include <cstddef>

namespace optpipe::milp::lp {

namespace detail {

inline double between_one_and_two(random_numbers& random) {
    constexpr std::size_t grains = 1U << 20U;
    return 1.0 + static_cast<double>(random.below(grains)) / static_cast<double>(grains);
}

} // namespace detail

/// Moves the costs of nonbasic variables away from 0, each by a random amount and towards dual feasibility. That breaks
/// ties in the dual ratio test, and makes the objective grow with every step.
inline void perturb_costs(tableau& t, double size, random_numbers& random) {
    for (int j = 0; j < t.program.variables(); ++j) {
        const auto s = t.status[at(j)];
        if (s == basis_status::basic || s == basis_status::free_at_zero || t.is_fixed(j)) continue;
        const double amount = size * (1.0 + std::abs(t.program.cost[at(j)])) * detail::between_one_and_two(random);
        const double signed_amount = s == basis_status::at_lower ? amount : -amount;
        t.cost[at(j)] += signed_amount;
        t.reduced_cost[at(j)] += signed_amount;
    }
}

/// Widens the bounds of basic variables, each by a random amount, so that the primal method can move.
inline void perturb_bounds(tableau& t, double size, random_numbers& random) {
    for (const int j : t.head) {
        t.lower[at(j)] -= size * (1.0 + std::abs(t.lower[at(j)])) * detail::between_one_and_two(random);
        t.upper[at(j)] += size * (1.0 + std::abs(t.upper[at(j)])) * detail::between_one_and_two(random);
    }
}

} // namespace optpipe::milp::lp
