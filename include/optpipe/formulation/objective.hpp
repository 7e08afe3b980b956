#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Adds min C, and C ≥ E_a for all a. For `span`, C ≥ E_a − (first start of the rank) (README, equation 1). Operations
/// that can't be the last operation of their rank need no row.
inline void add_objective(model_builder& d) {
    d.model().set_objective(d.objective);
    for (const rank r : d.problem().graph.all_ranks()) {
        const auto& own = d.precedences().computations_on(r);
        for (const auto a : own) {
            bool is_first = true, is_last = true;
            for (const auto b : own) {
                is_first = is_first && !d.precedences().precedes(b, a);
                is_last = is_last && !d.precedences().precedes(a, b);
            }
            if (is_first && d.is_span()) {
                sum s;
                d.add_time(s, 1.0, start_of(a));
                s.add(-1.0, d.first_starts[r.position()]);
                d.add_row(family::objective, s, 0.0, milp::infinity);
            }
            if (!is_last) continue;
            sum s;
            s.add(1.0, d.objective);
            d.add_time(s, -1.0, end_of(a));
            if (d.is_span()) s.add(1.0, d.first_starts[r.position()]);
            d.add_row(family::objective, s, 0.0, milp::infinity);
        }
    }
}

} // namespace optpipe::formulation
