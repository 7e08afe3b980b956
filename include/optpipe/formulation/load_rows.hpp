#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe::formulation {

/// The least time from the end of any operation of the rank until the end of the step.
inline double least_tail(const model_builder& d, rank r) {
    double least = milp::infinity;
    for (const auto a : d.precedences().computations_on(r))
        least = std::min(least, d.horizon() - d.latest(end_of(a)));
    return std::max(0.0, least);
}
/// The earliest start of any operation of the rank.
inline double least_head(const model_builder& d, rank r) {
    double least = milp::infinity;
    for (const auto a : d.precedences().computations_on(r))
        least = std::min(least, d.earliest(start_of(a)));
    return least;
}

/// Adds E_a ≥ (first start of the rank) + T_a + Σ T_b·P_ba, over all b of the same rank.
inline void add_load_rows(model_builder& d) {
    const auto& t = d.operations();
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r);
        const double head = own.empty() ? 0.0 : least_head(d, r);
        for (const auto a : own) {
            sum s;
            d.add_time(s, 1.0, start_of(a));
            if (d.is_span()) s.add(-1.0, d.first_starts[r.position()]);
            for (const auto b : own)
                if (b != a) s.add(-t.length(b), d.order(b, a));
            d.add_row(family::load, s, d.is_span() ? 0.0 : head, milp::infinity);
        }
    }
}

/// Adds C ≥ E_a + Σ T_b·P_ab + (time after a rank's last operation), the tail cut of Zero Bubble's code (README,
/// equation 8).
inline void add_tail_rows(model_builder& d) {
    const auto& t = d.operations();
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r);
        const double tail = own.empty() || d.is_span() ? 0.0 : least_tail(d, r);
        for (const auto a : own) {
            sum s;
            s.add(1.0, d.objective);
            d.add_time(s, -1.0, end_of(a));
            if (d.is_span()) s.add(1.0, d.first_starts[r.position()]);
            for (const auto b : own)
                if (b != a) s.add(-t.length(b), d.order(a, b));
            d.add_row(family::tails, s, tail, milp::infinity);
        }
    }
}

} // namespace optpipe::formulation
