#pragma once

#include "optpipe/formulation/copy_engines.hpp"
#include "optpipe/formulation/model_builder.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace optpipe::formulation {

/// Device memory at every point where it rises (README, equation 7; io/README.md, rule 7): at the start of
/// each F, of each reload, and of each I whose weight gradient needs more than its activation. Between two of them it
/// only falls.
///
/// A stash is counted from the start of F; less what I releases at its end; until the end of W; and not while it is
/// offloaded, from the end of its offload to the start of its reload. Where `weight_stash` is larger, the whole
/// activation is held until the end of W, and the rest (`extra`) from the start of an I that isn't part of a full
/// backward.
///
/// Of two rises at one instant, the one that is ordered second counts both.
class device_memory {
public:
    explicit device_memory(model_builder& d) : d_{d}, t_{d.operations()} {}

    void add() {
        for (const rank r : t_.problem().graph.all_ranks()) {
            if (!t_.is_limited(r)) continue;
            for (const cell c : t_.cells_on(r)) {
                if (costs(c).activation > memory_size{}) add_row(start_of(t_.id(role::forward, c)));
                if (d_.is_too_large()) return;
                if (t_.may_be_full(t_.stage_of(c))) add_row(start_of(t_.id(role::gradient, c)));
                if (!d_.offloaded(c).is_never()) add_row(start_of(t_.id(role::reload, c)));
            }
        }
    }

private:
    [[nodiscard]] const stage_costs& costs(cell c) const { return t_.problem().costs[t_.stage_of(c)]; }

    void add_row(event at) {
        const rank r = t_.rank_of(at.op);
        const cell own = t_.cell_of(at.op);
        sum level;
        // A pooled transfer may return before F of the same number, or after its gradient.
        const bool is_pooled_transfer = t_.is_transfer(at.op) && d_.is_pooled();
        if (!is_pooled_transfer) level.add(costs(own).activation.value());
        if (t_.role_of(at.op) == role::gradient) level.add(extra_of(own), d_.full(own).negation());
        for (const cell y : t_.cells_on(r)) {
            const bool is_present = (y == own && !is_pooled_transfer) || (y != own && add_cell(level, y, at));
            const bool may_be_offloaded = d_.is_pooled() ? y != own || !is_pooled_transfer : y != own && is_present;
            if (y == own && is_pooled_transfer) add_cell(level, y, at);
            if (may_be_offloaded) level.add(-costs(y).activation.value(), is_offloaded(y, at));
        }
        const double limit = (t_.problem().memory_limit[r] + t_.memory_slack()).value();
        // The order variables of transfers don't constrain kept stashes, unless their zero-length transfers are
        // ordered.
        if (t_.is_transfer(at.op) && !points_count(r)) {
            const double room = std::max(0.0, total(r) - limit);
            level.add(-room).add(room, d_.offloaded(own));
        }
        d_.add_row(family::device_memory, level, -milp::infinity, limit);
    }
    [[nodiscard]] double extra_of(cell c) const { return (costs(c).weight_stash - costs(c).activation).value(); }

    [[nodiscard]] bool points_count(rank r) const {
        const auto& own = t_.stages_on(r);
        const auto offloaded = std::count_if(own.begin(), own.end(), [&](stage s) { return t_.may_offload(s); });
        return d_.keeps_order() && offloaded == 1;
    }
    [[nodiscard]] double total(rank r) const {
        double all = 0.0;
        for (const cell c : t_.cells_on(r))
            all += std::max(costs(c).activation, costs(c).weight_stash).value();
        return all;
    }

    /// False if the stash can't be present.
    bool add_cell(sum& level, cell y, event at) {
        const auto& c = costs(y);
        const auto begun = has_begun(t_.id(role::forward, y), at);
        if (begun.is_never()) return false;
        const double all = c.activation.value();
        level.add(all, begun);
        const auto g = t_.id(role::gradient, y), w = t_.id(role::weight, y);
        if (!t_.problem().split_backward) {
            level.add(-all, has_ended(g, at));
        } else if (t_.may_be_full(t_.stage_of(y))) {
            level.add(-all, has_ended(w, at));
            add_extra(level, y, at);
        } else {
            const double kept = c.weight_stash.value();
            if (all > kept) level.add(kept - all, has_ended(g, at));
            if (kept > 0.0) level.add(-kept, has_ended(w, at));
        }
        return true;
    }
    /// extra ≥ (I has begun) − (W has ended) − full.
    void add_extra(sum& level, cell y, event at) {
        const auto begun = has_begun(t_.id(role::gradient, y), at);
        const auto ended = has_ended(t_.id(role::weight, y), at);
        if (begun.is_never() || ended.is_always()) return;
        auto what = meaning::excess_of(0.0);
        what.parts = {{1.0, begun}, {-1.0, ended}, {-1.0, d_.full(y)}};
        const auto extra = d_.add_binary(family::device_memory, std::move(what),
                                         "extra." + t_.name_of(t_.id(role::gradient, y)) + "." + d_.name_of(at));
        sum s;
        s.add(1.0, extra).add(-1.0, begun).add(1.0, ended).add(1.0, d_.full(y));
        d_.add_row(family::device_memory, s, 0.0, milp::infinity);
        level.add(extra_of(y), extra);
    }

    /// Whether computation b counts as started at that event; false only if it starts no earlier.
    literal has_begun(operation_id b, event at) {
        if (!t_.is_transfer(at.op)) return d_.order(b, at.op);
        return d_.before(family::device_memory, start_of(b), at, true);
    }
    /// Whether it has certainly ended.
    literal has_ended(operation_id b, event at) {
        if (!t_.is_transfer(at.op)) return d_.order(b, at.op);
        return d_.before(family::device_memory, end_of(b), at, false);
    }
    /// Whether the stash y is certainly offloaded: its offload has ended and its reload hasn't started.
    literal is_offloaded(cell y, event at) {
        if (d_.offloaded(y).is_never()) return literal::never();
        const auto out = t_.id(role::offload, y), in = t_.id(role::reload, y);
        const auto reloaded_later = [&] {
            if (!t_.is_transfer(at.op)) return d_.before(family::device_memory, at, start_of(in), true);
            if (const auto order = d_.transfer_order(at.op, in)) return *order;
            return t_.microbatch_of(at.op) < t_.microbatch_of(in) ? literal::always() : literal::never();
        }();
        if (reloaded_later.is_never()) return literal::never();
        const auto offload_ended = [&] {
            if (const auto order = d_.transfer_order(out, at.op); order && t_.is_transfer(at.op)) return *order;
            return d_.before(family::device_memory, end_of(out), at, false);
        }();
        return d_.all_of(family::device_memory, {d_.offloaded(y), offload_ended, reloaded_later},
                         "offloaded." + t_.name_of(out) + "." + d_.name_of(at));
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
