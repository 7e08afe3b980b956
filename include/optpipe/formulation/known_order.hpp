#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/formulation/microbatch_order.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/precedence.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe::formulation {

/// Adds the dependencies of the pipeline (Zero Bubble, section 4.4; README, equation 2). An absent recomputation is an
/// instant just before its gradient.
inline void add_dependencies(const operation_table& t, precedence& known) {
    const auto& p = t.problem();
    for (operation_id a = 0; a < t.size(); ++a)
        if (t.exists(a) && !t.is_transfer(a))
            for_each_dependency(
                p, t.operation_of(a), stash_way{false, t.may_recompute(t.stage_of(a))},
                [&](const operation& before, duration delay) { known.depend(t.id_of(before), a, delay.value()); });
}

/// The latest end of each rank in a schedule without needless idle time and with an objective of at most `horizon`. For
/// `span`, each rank runs for at most `horizon`. If rank r gets its first F from rank q, a gradient returns from r to
/// q, and r starts before q ends. Thus rank r ends at most `horizon` later than rank q. If the problem isn't plain,
/// `serial_time` bounds the latest end for `span`.
inline per_rank<double> latest_ends(const operation_table& t, double horizon) {
    const auto& p = t.problem();
    per_rank<double> latest(t.ranks(), horizon);
    if (p.objective == objective_kind::makespan) return latest;
    if (!is_plain(p)) return per_rank<double>(t.ranks(), p.serial_time().value());
    per_rank<unsigned char> is_known(t.ranks(), 0);
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        if (is_known[r] != 0) continue;
        is_known[r] = 1;
        if (s.value() > 0) latest[r] = latest[p.rank_of(s.previous())] + horizon;
    }
    return latest;
}

/// Adds the orders and windows that propagation deduces. The k-th operation of each kind and stage belongs to the k-th
/// microbatch. Weight gradients keep the order of microbatches only if the backwards are split.
inline void add_propagated_order(const operation_table& t, double horizon, precedence& known) {
    const stop_when late{[&] { return known.must_stop(); }};
    const auto found = propagate_order(t.problem(), duration{horizon}, late);
    if (!found) return known.contradict();
    const auto is_in_order = [&](const operation& op) {
        return op.kind != operation_kind::backward_weight || !t.may_be_full(op.stage);
    };
    for (const auto& w : found->windows)
        if (is_in_order(w.op)) known.limit(t.id_of(w.op), w.earliest_start, w.latest_end);
    for (const auto& pair : found->orders)
        if (is_in_order(pair.before) && is_in_order(pair.after)) known.order(t.id_of(pair.before), t.id_of(pair.after));
}

/// All orders and windows that are implied before the model is built. Propagation runs to a fixed point, or until
/// `options::stop` ends it.
inline precedence known_order(const operation_table& t, const options& o, double horizon, double slack) {
    precedence known{t, latest_ends(t, horizon), slack, o.stop};
    const bool keep = keeps_order(t, o.overtaking);
    const bool plain = is_plain(t.problem());
    // The first F on stage 0 starts at 0. Without this limit, all times of a schedule could be shifted.
    if (t.problem().objective == objective_kind::span && plain) known.limit(0, 0.0, t.length(0));
    add_dependencies(t, known);
    order_microbatches(t, keep, known);
    if (keep && plain && o.with.propagation) add_propagated_order(t, horizon, known);
    bool changed = !keep || !plain;
    while (changed) {
        changed = align_weights(t, known);
        changed = align_groups(t, known) || changed;
    }
    if (!known.is_stopped()) known.propagate_times();
    return known;
}

} // namespace optpipe::formulation
