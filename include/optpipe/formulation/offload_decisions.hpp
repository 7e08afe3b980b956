#pragma once

#include "optpipe/formulation/draft.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// The windows of transfers (papers.md 1.2, equation 4, without Ω): E_O ≥ E_F + T_o·w, E_R ≥ E_O + T_o·w,
/// E_I − T_I ≥ E_R. A stash that stays has two transfers that take no time, somewhere between F and I.
///
/// Where microbatches keep their order, the transfers of a stage keep it too. Let a and b travel, a before b, but b
/// leave first: then a may leave when b did (its F was over even earlier) and b when a did; and if b comes back first
/// as well, they change places there too: both are back before I of a, which comes before I of b. The points of what
/// stays can be put between: `place_standing_transfers` says where.
inline void add_offload_decisions(draft& d) {
    const auto& t = d.operations();
    const auto follow = [&](operation_id a, operation_id b, double length) {
        sum s;
        s.add(1.0, d.end(b)).add(-1.0, d.end(a)).add(-length, d.travels(t.cell_of(b)));
        d.add_row(family::offload_decisions, s, 0.0, milp::infinity);
    };
    for (cell c = 0; c < t.cells(); ++c) {
        if (d.travels(c).is_never()) continue;
        const auto f = t.id(role::forward, c);
        const auto out = t.id(role::offload, c), in = t.id(role::reload, c);
        follow(f, out, t.length(out));
        follow(out, in, t.length(in));
        d.imply_order(family::offload_decisions, {}, end_of(in), start_of(d.gradient_of(in)));
        const bool has_next = t.microbatch_of(c) + 1 < t.microbatches();
        if (!d.keeps_order() || !has_next) continue;
        follow(out, out + 1, t.length(out));
        follow(in, in + 1, t.length(in));
    }
}

} // namespace optpipe::formulation
