#pragma once

#include "optpipe/formulation/memory_order.hpp"
#include "optpipe/formulation/microbatch_order.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/precedence.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe::formulation {

/// Dependencies of the pipeline (Zero Bubble, section 4.4; papers.md 1.2, equation 2).
inline void add_dependencies(const operation_table& t, precedence& known) {
    const auto& p = t.task();
    for (const stage s : p.graph.all_stages())
        for (std::size_t m = 0; m < t.microbatches(); ++m) {
            const auto at = t.cell_at(s, m);
            const auto f = t.id(role::forward, at), g = t.id(role::gradient, at);
            known.depend(f, g, 0.0);
            if (p.split_backward) known.depend(g, t.id(role::weight, at), 0.0);
            if (p.is_last(s)) continue;
            const auto next = t.cell_at(s.next(), m);
            known.depend(f, t.id(role::forward, next), p.hop(s, s.next()).value());
            known.depend(t.id(role::gradient, next), g, p.hop(s.next(), s).value());
        }
}

/// By when each rank is through with its work if the objective is at most `horizon` and nothing waits in vain. For a
/// span: a rank's first F has its predecessor on another rank that isn't through before that microbatch has come back.
inline per_rank<double> latest_ends(const operation_table& t, double horizon) {
    const auto& p = t.task();
    per_rank<double> latest(t.ranks(), horizon);
    if (p.objective == objective_kind::makespan) return latest;
    per_rank<unsigned char> is_known(t.ranks(), 0);
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        if (is_known[r] != 0) continue;
        is_known[r] = 1;
        if (s.value() > 0) latest[r] = latest[p.rank_of(s.previous())] + horizon;
    }
    return latest;
}

/// All that is fixed before the model is made, until nothing new follows.
inline precedence known_order(const operation_table& t, const options& o, double horizon, double slack) {
    precedence known{t, latest_ends(t, horizon), slack};
    const bool keep = keeps_order(t, o.overtaking);
    // Without it all times of a schedule could be shifted.
    if (t.task().objective == objective_kind::span) known.limit_end(0, t.length(0));
    add_dependencies(t, known);
    order_microbatches(t, keep, known);
    for (bool changed = true; changed && !known.contradiction();) {
        known.propagate_times();
        changed = o.with.windows && known.order_by_windows();
        if (o.with.memory_order && !known.contradiction()) changed = memory_order{t, known}.apply() || changed;
        if (!keep) changed = align_weights(t, known) || changed;
    }
    return known;
}

} // namespace optpipe::formulation
