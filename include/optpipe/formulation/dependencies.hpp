#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// E(s,j,F) ≥ E(s−1,j,F) + T_c + T_F and the like (README, equation 2), and what else is known of the order of
/// two operations of one rank with none between them. A full backward hands on its gradient T_W later.
inline void add_dependencies(model_builder& d) {
    const auto& t = d.operations();
    for (const auto& arc : d.precedences().arcs()) {
        if (t.rank_of(arc.before) == t.rank_of(arc.after) && arc.lag == 0.0 &&
            (t.cell_of(arc.before) == t.cell_of(arc.after) || d.full(t.cell_of(arc.before)).is_never()))
            continue; // below, or implied by what is
        sum s;
        d.add_time(s, 1.0, start_of(arc.after));
        d.add_time(s, -1.0, end_of(arc.before));
        const auto c = t.cell_of(arc.before);
        if (t.role_of(arc.before) == role::gradient && t.role_of(arc.after) == role::gradient)
            s.add(-t.costs_of(arc.before).backward_weight.value(), d.full(c));
        d.add_row(family::dependencies, s, arc.lag, milp::infinity);
    }
    for (const rank r : d.problem().graph.all_ranks())
        for (const auto& pair : d.precedences().covering_pairs(r))
            d.imply_order(family::dependencies, {}, end_of(pair.before), start_of(pair.after));
}

} // namespace optpipe::formulation
