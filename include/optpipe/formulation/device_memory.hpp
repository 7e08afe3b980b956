#pragma once

#include "optpipe/formulation/copy_engines.hpp"
#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/formulation/storage_options.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Limits device memory at every event that raises it (README, equation 7; io/README.md, rule 8). Memory of stashes
/// rises only at the start of an F, a reload, a recomputation, or an I with extra memory.
///
/// Memory of F counts from the start of F, and restored memory from the start of the recomputation. Memory that I
/// releases counts until the end of I, and all other memory counts until the end of W. Offloaded memory doesn't count
/// from the end of the offload to the start of the reload. If `weight_stash` is larger than the restored stash, all
/// memory counts until the end of W. `extra` counts from the start of an I that isn't part of a full backward.
///
/// Memory of attention keys, values and edges counts until it is freed, maybe on another rank. Memory of keys, values
/// and edges rises at the starts of F and gradients.
///
/// If memory rises at two events at one time, the second event counts both rises.
class device_memory {
public:
    explicit device_memory(model_builder& d)
        : d_{d}, t_{d.operations()}, taken_beside_(t_.size(), 0.0), freed_beside_(t_.ranks()) {
        if (!t_.problem().is_simple()) find_what_is_beside();
    }

    void add() {
        for (const rank r : t_.problem().graph.all_ranks()) {
            if (!t_.is_limited(r)) continue;
            for (const cell c : t_.cells_on(r)) {
                const auto f = t_.id(role::forward, c), g = t_.id(role::gradient, c);
                if (held(c).most > 0.0 || taken_beside_[f] > 0.0) add_row(start_of(f));
                if (d_.is_too_large()) return;
                if (restored(c).most > 0.0) add_row(start_of(t_.id(role::recompute, c)));
                if (t_.may_be_full(t_.stage_of(c)) || taken_beside_[g] > 0.0) add_row(start_of(g));
                if (!d_.offloaded(c).is_never()) add_row(start_of(t_.id(role::reload, c)));
            }
        }
    }

private:
    /// An amount of memory that is free once the operation `by` has ended.
    struct release {
        operation_id by;
        double amount;
    };

    void find_what_is_beside() {
        const auto& p = t_.problem();
        for (const role what : {role::forward, role::gradient})
            for (cell c = 0; c < t_.cells(); ++c) {
                const auto a = t_.id(what, c);
                if (!t_.exists(a)) continue;
                const auto op = t_.operation_of(a);
                const auto beside = memory_effect_beside_stash(p, op);
                const auto free = [&](rank r, memory_size amount) {
                    if (amount > memory_size{}) freed_beside_[r].push_back({a, amount.value()});
                };
                taken_beside_[a] = beside.acquired_at_start.value();
                free(p.rank_of(op.stage), beside.released_at_end);
                for_each_release_of_others(p, op, free);
            }
    }

    /// The amount that the function `of` returns for the costs and the storage option of a cell.
    template <class Size> [[nodiscard]] amount amount_of(cell c, const Size& of) const {
        const auto costs = t_.costs_of(c);
        return d_.by_option(c, [&](storage_index o) { return of(costs, t_.stored_in(c, o)).value(); });
    }
    [[nodiscard]] amount held(cell c) const {
        return amount_of(c, [](const stage_costs&, const storage_option& o) { return o.held; });
    }
    /// Memory that a recomputation restores.
    [[nodiscard]] amount restored(cell c) const {
        return amount_of(c, [](const stage_costs& k, const storage_option& o) { return o.restored(k) - o.held; });
    }
    /// Memory that I adds at its start, unless it is part of a full backward.
    [[nodiscard]] amount extra(cell c) const {
        return amount_of(c, [](const stage_costs& k, const storage_option& o) {
            return std::max(memory_size{}, k.weight_stash - o.restored(k));
        });
    }

    void add_row(event at) {
        const rank r = t_.rank_of(at.op);
        const cell own = t_.cell_of(at.op);
        memory_level level{d_, family::device_memory, at};
        // The m-th pooled transfer may come before the m-th F, or after the m-th gradient.
        const bool is_pooled_transfer = t_.is_transfer(at.op) && d_.is_pooled();
        if (!is_pooled_transfer) level.hold(held(own));
        const bool is_gradient = t_.role_of(at.op) == role::gradient;
        if (is_gradient || t_.role_of(at.op) == role::recompute) level.hold(restored(own));
        if (is_gradient) level.hold(extra(own), d_.full(own).negation(), at.op);
        for (const cell y : t_.cells_on(r)) {
            const bool is_present = (y == own && !is_pooled_transfer) || (y != own && add_cell(level, y, at));
            const bool may_be_offloaded = d_.is_pooled() ? y != own || !is_pooled_transfer : y != own && is_present;
            if (y == own && is_pooled_transfer) add_cell(level, y, at);
            if (may_be_offloaded) level.release(d_.offloaded_size(y), is_offloaded(y, at), t_.id(role::offload, y));
        }
        add_what_is_beside(level, r, at);
        const double limit = (t_.problem().memory_limit[r] + t_.memory_slack()).value();
        // Kept stashes have no transfer order unless zero-length transfers are ordered, too.
        if (t_.is_transfer(at.op) && !points_count(r)) {
            const double room = std::max(0.0, t_.all_memory(r).value() - limit);
            level.total().add(-room).add(room, d_.offloaded(own));
        }
        d_.add_row(family::device_memory, level.total(), -milp::infinity, limit);
    }
    [[nodiscard]] bool points_count(rank r) const {
        const auto& own = t_.stages_on(r);
        const auto offloaded = std::count_if(own.begin(), own.end(), [&](stage s) { return t_.may_offload(s); });
        return d_.keeps_order() && offloaded == 1;
    }
    void add_what_is_beside(memory_level& level, rank r, event at) {
        for (const cell c : t_.cells_on(r))
            for (const role what : {role::forward, role::gradient}) {
                const auto a = t_.id(what, c);
                if (taken_beside_[a] > 0.0)
                    level.total().add(taken_beside_[a], a == at.op ? literal::always() : has_begun(a, at));
            }
        for (const auto& [by, amount] : freed_beside_[r])
            level.total().add(-amount, has_freed(by, at));
    }

    /// Adds the memory of a cell. Returns false, and adds nothing, if the cell's F can't have started before `at`.
    bool add_cell(memory_level& level, cell y, event at) {
        const auto f = t_.id(role::forward, y), g = t_.id(role::gradient, y), w = t_.id(role::weight, y);
        const auto begun = has_begun(f, at);
        if (begun.is_never()) return false;
        level.hold(held(y), begun, f);
        const auto again = t_.id(role::recompute, y);
        if (const auto more = restored(y); more.most > 0.0) level.hold(more, has_begun(again, at), again);
        const stage s = t_.stage_of(y);
        if (!t_.has_gradient(s)) level.release(held(y), has_ended(f, at), f);
        if (!t_.has_gradient(s)) return true;
        const auto until_gradient = amount_of(y, [&](const stage_costs& k, const storage_option& o) {
            if (!t_.has_weight(s)) return o.restored(k);
            return std::max(memory_size{}, o.restored(k) - k.weight_stash);
        });
        if (until_gradient.most > 0.0) level.release(until_gradient, has_ended(g, at), g);
        if (!t_.has_weight(s)) return true;
        const auto until_weight = amount_of(
            y, [](const stage_costs& k, const storage_option& o) { return std::min(o.restored(k), k.weight_stash); });
        if (until_weight.most > 0.0) level.release(until_weight, has_ended(w, at), w);
        if (t_.may_be_full(s)) add_extra(level, y, at);
        return true;
    }
    /// Adds the extra memory of a cell times a binary z ≥ (I has begun) − (W has ended) − (the backward is full).
    void add_extra(memory_level& level, cell y, event at) {
        const auto begun = has_begun(t_.id(role::gradient, y), at);
        const auto ended = has_ended(t_.id(role::weight, y), at);
        if (begun.is_never() || ended.is_always()) return;
        auto what = meaning::excess_of(0.0);
        what.parts = {{1.0, begun}, {-1.0, ended}, {-1.0, d_.full(y)}};
        const auto is_extra = d_.add_binary(family::device_memory, std::move(what),
                                            "extra." + t_.name_of(t_.id(role::gradient, y)) + "." + d_.name_of(at));
        sum s;
        s.add(1.0, is_extra).add(-1.0, begun).add(1.0, ended).add(1.0, d_.full(y));
        d_.add_row(family::device_memory, s, 0.0, milp::infinity);
        level.hold(extra(y), is_extra, t_.id(role::gradient, y));
    }

    /// Whether computation b counts as started at the event `at`. False only if b starts no earlier than `at`.
    literal has_begun(operation_id b, event at) {
        if (!t_.is_transfer(at.op)) return d_.order(b, at.op);
        return d_.before(family::device_memory, start_of(b), at, true);
    }
    /// Whether computation b has certainly ended.
    literal has_ended(operation_id b, event at) {
        if (!t_.is_transfer(at.op)) return d_.order(b, at.op);
        return d_.before(family::device_memory, end_of(b), at, false);
    }
    /// Whether computation b, which may be on any rank, has certainly ended.
    literal has_ended_anywhere(operation_id b, event at) {
        if (t_.rank_of(b) == t_.rank_of(at.op)) return has_ended(b, at);
        return d_.before(family::device_memory, end_of(b), at, false);
    }
    /// Whether b has certainly freed its memory at the event `at`; stashes don't count. A full backward frees its
    /// memory at the end of W.
    literal has_freed(operation_id b, event at) {
        const auto ended = has_ended_anywhere(b, at);
        const cell c = t_.cell_of(b);
        if (t_.role_of(b) != role::gradient || d_.full(c).is_never() || ended.is_never()) return ended;
        const auto all_ended = has_ended_anywhere(t_.id(role::weight, c), at);
        if (all_ended.is_always()) return ended;
        auto what = meaning::excess_of(0.0);
        what.parts = {{1.0, d_.full(c)}, {-1.0, all_ended}};
        const auto name = t_.name_of(b) + "." + d_.name_of(at);
        const auto still_runs = d_.add_binary(family::device_memory, std::move(what), "runs." + name);
        sum s;
        s.add(1.0, still_runs).add(-1.0, d_.full(c)).add(1.0, all_ended);
        d_.add_row(family::device_memory, s, 0.0, milp::infinity);
        return d_.all_of(family::device_memory, {ended, still_runs.negation()}, "freed." + name);
    }
    /// Whether the stash of y is certainly on the host: offloaded, and not yet being reloaded.
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
    std::vector<double> taken_beside_;            ///< indexed by operation
    per_rank<std::vector<release>> freed_beside_; ///< indexed by the rank whose memory is freed
};

} // namespace optpipe::formulation
