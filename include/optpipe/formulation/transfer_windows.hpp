#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>

namespace optpipe::formulation {

/// Adds the windows of transfers (README, equation 4), namely E_O ≥ E_F + T_O, E_R ≥ E_O + T_R, E_I − T_I ≥ E_R. A
/// possible recomputation replaces I in E_I − T_I ≥ E_R. A kept stash has two transfers of length 0 between F and the
/// computation that needs the stash.
///
/// Without overtaking, the transfers of a stage keep the order of microbatches. Proof: let microbatch a come before
/// microbatch b, and let b be offloaded first. The two offloads can be swapped, because F of a ended before F of b. If
/// the two reloads are in the same order, both end before I of a, and can be swapped, too. For the places of
/// zero-length transfers, see `place_unused_transfers`.
inline void add_transfer_windows(model_builder& d) {
    const auto& t = d.operations();
    const auto follow = [&](operation_id a, operation_id b) {
        sum s;
        d.add_time(s, 1.0, start_of(b));
        d.add_time(s, -1.0, end_of(a));
        d.add_row(family::transfer_windows, s, 0.0, milp::infinity);
    };
    for (cell c = 0; c < t.cells(); ++c) {
        if (d.offloaded(c).is_never()) continue;
        const auto f = t.id(role::forward, c);
        const auto out = t.id(role::offload, c), in = t.id(role::reload, c);
        follow(f, out);
        follow(out, in);
        d.imply_order(family::transfer_windows, {}, end_of(in), start_of(d.needs_stash(in)));
        const bool has_next = t.microbatch_of(c) + 1 < t.microbatches();
        if (!d.keeps_order() || !has_next) continue;
        follow(out, out + 1);
        follow(in, in + 1);
    }
}

} // namespace optpipe::formulation
