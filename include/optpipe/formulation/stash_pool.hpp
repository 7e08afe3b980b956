#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace optpipe::formulation {

/// Adds rows for pooled stashes. The k-th F, gradient, W, offload and reload of a stage are numbered by time.
/// `microbatch_order` shows why the numbering is valid for computations. Only the number of stashes matters, not their
/// microbatches. A gradient or an offload takes a stash, and an ended forward or reload provides a stash. When a
/// gradient or an offload starts, the number of taken stashes is at most the number of provided stashes. Every valid
/// schedule gives a solution with the same times: the j-th offload follows j forwards, and the j-th reload follows j
/// offloads. Counted from the end of the step, the j-th reload of a stage comes before the j-th gradient.
///
/// Pooled transfers have no microbatch, and are independent across stages.
class stash_pool {
public:
    explicit stash_pool(model_builder& d) : d_{d}, t_{d.operations()} {}

    void add() {
        for (const stage s : t_.problem().graph.all_stages()) {
            if (!t_.may_offload(s)) continue;
            for (std::size_t k = 0; k < t_.microbatches() && !d_.is_too_large(); ++k) {
                add_transfer_pair(s, k);
                add_gradient(s, k);
                add_offload(s, k);
            }
        }
    }

private:
    [[nodiscard]] operation_id op(role what, stage s, std::size_t m) const { return t_.id(what, t_.cell_at(s, m)); }
    [[nodiscard]] const literal& transfer_pair(stage s, std::size_t m) const { return d_.offloaded(t_.cell_at(s, m)); }
    literal before(event first, event then, bool exact) { return d_.before(family::stash_pool, first, then, exact); }

    /// If only n transfer pairs of a stage take place, they are the first n pairs. If i reloads follow the k-th reload,
    /// at least i + 1 gradients start after the k-th reload.
    void add_transfer_pair(stage s, std::size_t k) {
        const auto count = t_.microbatches();
        if (k + 1 < count)
            d_.add_row(family::stash_pool, sum{}.add(1.0, transfer_pair(s, k)).add(-1.0, transfer_pair(s, k + 1)), 0.0,
                       milp::infinity);
        for (std::size_t i = 1; k + i < count; ++i)
            d_.imply_order(family::stash_pool, {transfer_pair(s, k + i)}, end_of(op(role::reload, s, k)),
                           start_of(op(role::gradient, s, count - 1 - i)));
    }
    /// Adds a row for gradient k ≥ 0: Σ (F has ended) − Σ (offloaded and not reloaded) ≥ k + 1.
    void add_gradient(stage s, std::size_t k) {
        const auto g = op(role::gradient, s, k);
        sum at_hand;
        for (std::size_t m = 0; m < t_.microbatches(); ++m)
            at_hand.add(1.0, d_.order(op(role::forward, s, m), g)).add(-1.0, is_offloaded(s, m, g));
        d_.add_row(family::stash_pool, at_hand, static_cast<double>(k + 1), milp::infinity);
    }
    /// A literal that is at least 1 if stash m is on the host, or in transfer, when gradient g starts.
    literal is_offloaded(stage s, std::size_t m, operation_id g) {
        const auto out = op(role::offload, s, m), in = op(role::reload, s, m);
        const auto later = before(start_of(g), start_of(out), true);
        const auto back = before(end_of(in), start_of(g), false);
        if (later.is_always() || back.is_always()) return literal::never();
        auto what = meaning::excess_of(0.0);
        what.parts = {{1.0, transfer_pair(s, m)}, {-1.0, later}, {-1.0, back}};
        const auto gone =
            d_.add_binary(family::stash_pool, std::move(what), "gone." + t_.name_of(out) + "." + t_.name_of(g));
        sum row;
        row.add(1.0, gone).add(-1.0, transfer_pair(s, m)).add(1.0, later).add(1.0, back);
        d_.add_row(family::stash_pool, row, 0.0, milp::infinity);
        return gone;
    }
    /// Adds a row for offload k: Σ (F has ended) + Σ (reloaded) ≥ (gradients that have started) + k + 1.
    void add_offload(stage s, std::size_t k) {
        const auto out = start_of(op(role::offload, s, k));
        const auto count = static_cast<double>(t_.microbatches());
        sum at_hand;
        for (std::size_t m = 0; m < t_.microbatches(); ++m) {
            at_hand.add(1.0, before(end_of(op(role::forward, s, m)), out, false));
            at_hand.add(-1.0, before(start_of(op(role::gradient, s, m)), out, true));
            if (m < k) at_hand.add(1.0, is_back(s, m, k));
        }
        at_hand.add(count).add(-count, transfer_pair(s, k));
        at_hand.add(-static_cast<double>(k + 1), transfer_pair(s, k));
        d_.add_row(family::stash_pool, at_hand, 0.0, milp::infinity);
    }
    literal is_back(stage s, std::size_t m, std::size_t k) {
        const auto in = op(role::reload, s, m), out = op(role::offload, s, k);
        if (const auto order = d_.transfer_order(in, out)) return *order;
        return before(end_of(in), start_of(out), false);
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
