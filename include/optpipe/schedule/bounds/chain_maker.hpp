#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Makes the chains of any problem. Equal sequences have one chain per stage, kind and slice, with one operation per
/// sequence.
///
/// Every valid schedule satisfies the constraints of the chains. Each operation of a chain waits for a different
/// operation of each predecessor chain. Thus operation k ≥ 0 of a chain can start only after k + 1 operations of each
/// predecessor chain. If k + 1 operations have taken an amount of memory and j have released it, at least k + 1 − j
/// times the amount is held. A stash counts as the least memory that any option leaves on the device. Recomputation is
/// ignored, except for the least that all storage options do inside the backward.
class chain_maker {
public:
    explicit chain_maker(const problem& p)
        : p_{&p}, made_{chain_system::without_chains(p)}, cell_{p.graph}, forward_(cell_.size(), chain_system::none),
          gradient_(forward_), weight_(forward_) {
        for (const auto& of : sequences_by_cost(p)) {
            groups_.push_back(made_.length.size());
            for (const microbatch m : of.slices)
                for (const stage s : p.graph.all_stages())
                    add(s, m, of.count);
            for (const microbatch m : of.slices)
                for (const stage s : p.graph.all_stages()) {
                    connect(s, m);
                    if (is_plain(p)) {
                        hold_plain(s, m);
                        continue;
                    }
                    hold_stash(s, m);
                    hold_slice(s, m, of.slices.back());
                    hold_edges(s, m);
                }
        }
        groups_.push_back(made_.length.size());
    }
    chain_system take() { return std::move(made_); }
    chain_system take_ordered() {
        for (std::size_t i = 0; i + 1 < groups_.size(); ++i)
            order(groups_[i], groups_[i + 1]);
        return take();
    }
    /// Lets `chain_of` know the operations of all sequences. Before this call, `chain_of` knows only the operations of
    /// the first of equal sequences.
    void share_chains() {
        for (const auto& alike : interchangeable_microbatches(*p_))
            for (const microbatch m : alike)
                for (const stage s : p_->graph.all_stages())
                    for (auto* chains : {&forward_, &gradient_, &weight_})
                        (*chains)[cell_(s, m)] = (*chains)[cell_(s, alike.front())];
    }
    /// The chain of a forward, or of an I or B.
    [[nodiscard]] std::size_t chain_of(const operation& op) const {
        return (op.kind == operation_kind::forward ? forward_ : gradient_)[cell_(op)];
    }
    /// The chain of a W, or `none` if the stage's backward isn't split.
    [[nodiscard]] std::size_t weight_chain(stage s, microbatch m) const { return weight_[cell_(s, m)]; }
    [[nodiscard]] const chain_system& made() const { return made_; }

private:
    [[nodiscard]] bool has_gradient(stage s) const { return p_->costs[s].gradients != gradient_kind::none; }
    [[nodiscard]] bool has_weight(stage s) const {
        return may_split(*p_, s) && p_->costs[s].gradients == gradient_kind::full;
    }

    void add(stage s, microbatch m, std::size_t count) {
        const auto c = p_->cost(s, m);
        const auto i = cell_(s, m);
        const rank r = p_->rank_of(s);
        forward_[i] = made_.add(r, c.forward, count);
        if (!has_gradient(s)) return;
        auto extra = duration::unlimited();
        for (const auto& option : p_->storage[s])
            extra = std::min(extra, option.backward_extra);
        const auto back = may_split(*p_, s) ? c.backward_input : c.backward();
        gradient_[i] = made_.add(r, back + p_->microbatches.factors(s, m).forward * extra, count);
        if (has_weight(s)) weight_[i] = made_.add(r, c.backward_weight, count);
    }
    /// A gradient with other gradients as inputs gets no link from its forward: the inputs already follow the forward.
    void connect(stage s, microbatch m) {
        const auto after_inputs = [&](const operation& op) {
            bool waits_for_gradient = false;
            for_each_input_of_others(*p_, op, [&](const operation& before, duration delay) {
                made_.connect(chain_of(before), chain_of(op), delay.value());
                waits_for_gradient = waits_for_gradient || is_gradient(before.kind);
            });
            if (is_gradient(op.kind) && !waits_for_gradient) made_.connect(forward_[cell_(op)], chain_of(op), 0.0);
        };
        after_inputs(forward(s, m));
        if (has_gradient(s)) after_inputs(backward_input(s, m));
        if (has_weight(s)) made_.connect(gradient_[cell_(s, m)], weight_[cell_(s, m)], 0.0);
    }

    void hold_plain(stage s, microbatch m) {
        const auto i = cell_(s, m);
        auto& on = made_.devices[p_->rank_of(s).position()];
        const auto& costs = p_->costs[s];
        chain_system::held_stage held{made_.place[forward_[i]], made_.place[gradient_[i]]};
        held.activation = costs.activation.value();
        if (has_weight(s)) {
            held.weight = made_.place[weight_[i]];
            held.kept = std::min(costs.activation, costs.weight_stash).value();
        }
        if (const auto transfer = stash_transfer(*p_, s)) {
            held.offloads = true;
            held.offload = transfer->offload.value();
            held.reload = transfer->reload.value();
        }
        on.offloads = on.offloads || (held.offloads && held.activation > 0.0);
        on.stages.push_back(held);
    }
    void hold(rank r, std::size_t from, std::size_t to, memory_size size) {
        if (size > memory_size{}) made_.devices[r.position()].holdings.push_back({from, to, size.value()});
    }
    /// A full backward counts as an I followed at once by a W. No W holds more than the stash.
    void hold_stash(stage s, microbatch m) {
        auto rest = memory_size::unlimited();
        for (const auto& option : p_->storage[s])
            rest = std::min(rest, option.left_on_device());
        rest = p_->microbatches.factors(s, m).memory * rest;
        const auto i = cell_(s, m);
        const auto kept = has_weight(s) ? std::min(rest, p_->cost(s, m).weight_stash) : memory_size{};
        const rank r = p_->rank_of(s);
        hold(r, forward_[i], has_gradient(s) ? gradient_[i] : forward_[i], rest - kept);
        hold(r, forward_[i], weight_[i], kept);
    }
    void hold_slice(stage s, microbatch m, microbatch last) {
        if (!p_->microbatches.is_slice(m)) return;
        const auto i = cell_(s, m);
        const auto at_last = cell_(s, last);
        const auto kv = p_->cost(s, m).kv;
        const rank r = p_->rank_of(s);
        hold(r, forward_[i], has_gradient(s) ? gradient_[i] : forward_[at_last], kv);
        if (m != last && has_gradient(s)) hold(r, gradient_[at_last], gradient_[i], kv);
    }
    void hold_edges(stage s, microbatch m) {
        p_->graph.for_each_edge_out_of(s, [&](const edge& e) {
            const auto held = p_->microbatches.factors(s, m).memory * e.held;
            hold(p_->rank_of(s), forward_[cell_(s, m)], forward_[cell_(e.to, m)], held);
            if (p_->carries_gradients(e))
                hold(p_->rank_of(e.to), gradient_[cell_(e.to, m)], gradient_[cell_(s, m)], held);
        });
    }

    /// Orders the chains [`first`, `last`) of one group of equal sequences. If chain x leads to chain y on one device,
    /// operation n of x comes before operation n of y.
    void order(std::size_t first, std::size_t last) {
        std::vector<char> reached;
        std::vector<std::size_t> open;
        for (std::size_t from = first; from < last; ++from) {
            reached.assign(last - first, 0);
            open.assign(1, from);
            while (!open.empty()) {
                const std::size_t at = open.back();
                open.pop_back();
                for (const auto& next : made_.links[1][at])
                    if (!std::exchange(reached[next.chain - first], char{1})) open.push_back(next.chain);
            }
            auto& on = made_.devices[made_.rank_of[from]];
            for (std::size_t to = first; to < last; ++to)
                if (reached[to - first] && made_.rank_of[to] == made_.rank_of[from])
                    on.orders.emplace_back(made_.place[to], made_.place[from]);
        }
    }

    const problem* p_;
    chain_system made_;
    cell_numbering cell_;
    /// The index of each group's first chain, and then the number of all chains.
    std::vector<std::size_t> groups_{};
    /// The chains of each cell's forward, gradient and weight gradient. Among equal sequences, only the cells of the
    /// first one have chains.
    std::vector<std::size_t> forward_;
    std::vector<std::size_t> gradient_;
    std::vector<std::size_t> weight_;
};

[[nodiscard]] inline chain_system chains_of(const problem& p) { return chain_maker{p}.take_ordered(); }
/// `chains_of` without `device::orders`, which take the most time to find.
[[nodiscard]] inline chain_system chains_without_orders(const problem& p) { return chain_maker{p}.take(); }

} // namespace optpipe::detail
