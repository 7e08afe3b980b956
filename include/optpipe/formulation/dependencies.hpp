#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Adds E(s,j,F) ≥ E(s−1,j,F) + T_c + T_F and similar rows (README, equation 2). Consecutive operations of a rank with
/// a known order also get a row. A full backward sends its gradient at the end of W, which is T_W after the end of I.
inline void add_dependencies(model_builder& d) {
    const auto& t = d.operations();
    for (const auto& arc : d.precedences().arcs()) {
        if (t.rank_of(arc.before) == t.rank_of(arc.after) && arc.lag == 0.0 &&
            (t.cell_of(arc.before) == t.cell_of(arc.after) || d.full(t.cell_of(arc.before)).is_never()))
            continue; // another branch handles this case, or other rows imply it
        sum s;
        d.add_time(s, 1.0, start_of(arc.after));
        d.add_time(s, -1.0, end_of(arc.before));
        const auto c = t.cell_of(arc.before);
        if (t.role_of(arc.before) == role::gradient && t.role_of(arc.after) == role::gradient)
            s.add(-t.length(t.id(role::weight, c)), d.full(c));
        d.add_row(family::dependencies, s, arc.lag, milp::infinity);
    }
    for (const rank r : d.problem().graph.all_ranks())
        for (const auto& pair : d.precedences().covering_pairs(r))
            d.imply_order(family::dependencies, {}, end_of(pair.before), start_of(pair.after));
}

} // namespace optpipe::formulation
