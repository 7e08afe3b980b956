#pragma once

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace oracle {

namespace detail {

/// Draws operations that may come next until none is left, or until none fits the memory.
class order_drawer {
public:
    order_drawer(random_numbers& random, const optpipe::problem& p)
        : random_{&random}, p_{&p}, device_(p.graph.ranks()), host_(p.graph.ranks()), cells_(p.graph.cells()),
          forwards_(p.graph.stages()) {}

    std::optional<optpipe::order> draw() {
        optpipe::order result{p_->graph, {}};
        for (;;) {
            std::vector<optpipe::operation> candidates;
            for (const optpipe::stage s : p_->graph.all_stages())
                for (const optpipe::microbatch m : p_->graph.all_microbatches())
                    add_candidates(s, m, candidates);
            if (candidates.empty()) break;
            const auto op = candidates[random_->below(candidates.size())];
            take(op);
            result.operations.push_back(op);
        }
        for (const auto& c : cells_)
            if (!c.done) return std::nullopt;
        return result;
    }

private:
    struct cell {
        bool begun = false, left = false, back = false, restored = false, gradient = false, done = false;
        optpipe::storage_index storage = 0;
    };
    cell& at(optpipe::stage s, optpipe::microbatch m) {
        return cells_[s.position() * p_->graph.microbatches() + m.position()];
    }

    void add_candidates(optpipe::stage s, optpipe::microbatch m, std::vector<optpipe::operation>& list) {
        using optpipe::operation_kind;
        auto& c = at(s, m);
        const auto& options = p_->storage[s];
        if (!c.begun) c.storage = static_cast<optpipe::storage_index>(random_->below(options.size()));
        const auto offer = [&](optpipe::operation_kind k) {
            if (fits({s, k, m, c.storage})) list.push_back({s, k, m, c.storage});
        };
        if (!c.begun && may_begin(s, m)) offer(operation_kind::forward);
        if (c.gradient && !c.done) offer(operation_kind::backward_weight);
        if (!c.begun || c.gradient || c.done) return;
        const auto& stored = options[c.storage];
        if (!c.left && stored.offloads()) offer(operation_kind::offload);
        if (c.left && !c.back) offer(operation_kind::reload);
        if (c.left != c.back || (stored.offloads() && !c.left)) return;
        if (stored.recomputes() && !c.restored) return offer(operation_kind::recompute);
        if (!may_return(s, m)) return;
        const auto gradients = p_->costs[s].gradients;
        if (gradients == optpipe::gradient_kind::full) offer(operation_kind::backward);
        if (may_split(*p_, s)) offer(operation_kind::backward_input);
    }
    /// Whether F may come next by rules 2 and 3.
    bool may_begin(optpipe::stage s, optpipe::microbatch m) {
        bool may = true;
        p_->graph.for_each_edge_into(s, [&](const optpipe::edge& e) { may = may && at(e.from, m).begun; });
        if (const auto slice = p_->microbatches.slice_before(m)) may = may && at(s, *slice).begun;
        const auto place = forwards_[s].size();
        p_->groups.for_each_member(s, [&](optpipe::stage member, optpipe::duration) {
            may = may && (forwards_[member].size() <= place || forwards_[member][place] == m);
        });
        return may;
    }
    /// Whether I or B may come next by rule 3.
    bool may_return(optpipe::stage s, optpipe::microbatch m) {
        bool may = true;
        p_->graph.for_each_edge_out_of(s, [&](const optpipe::edge& e) {
            const bool has_gradient = p_->costs[e.to].gradients != optpipe::gradient_kind::none;
            may = may && (!has_gradient || at(e.to, m).gradient);
        });
        if (const auto slice = p_->microbatches.slice_after(m)) may = may && at(s, *slice).gradient;
        p_->groups.for_each_member(s,
                                   [&](optpipe::stage member, optpipe::duration) { may = may && at(member, m).begun; });
        return may;
    }
    bool fits(const optpipe::operation& op) const {
        const auto r = p_->rank_of(op.stage);
        const auto effect = memory_effect_of(*p_, op);
        return device_[r] + effect.acquired_at_start <= p_->memory_limit[r] &&
               host_[r] + effect.host_acquired_at_start <= p_->host_memory_limit[r];
    }
    void take(const optpipe::operation& op) {
        const auto r = p_->rank_of(op.stage);
        const auto effect = memory_effect_of(*p_, op);
        device_[r] += effect.acquired_at_start - effect.released_at_end;
        host_[r] += effect.host_acquired_at_start - effect.host_released_at_end;
        for_each_release_of_others(*p_, op,
                                   [&](optpipe::rank of, optpipe::memory_size amount) { device_[of] -= amount; });
        auto& c = at(op.stage, op.microbatch);
        switch (op.kind) {
        case optpipe::operation_kind::forward:
            c.begun = true;
            c.storage = op.storage;
            c.done = p_->costs[op.stage].gradients == optpipe::gradient_kind::none;
            forwards_[op.stage].push_back(op.microbatch);
            break;
        case optpipe::operation_kind::backward_input:
            c.gradient = true;
            c.done = p_->costs[op.stage].gradients == optpipe::gradient_kind::input;
            break;
        case optpipe::operation_kind::backward_weight: c.done = true; break;
        case optpipe::operation_kind::backward: c.gradient = c.done = true; break;
        case optpipe::operation_kind::offload: c.left = true; break;
        case optpipe::operation_kind::reload: c.back = true; break;
        case optpipe::operation_kind::recompute: c.restored = true; break;
        }
    }

    random_numbers* random_;
    const optpipe::problem* p_;
    optpipe::per_rank<optpipe::memory_size> device_, host_;
    std::vector<cell> cells_;
    /// The microbatches of each stage, in the order of their F.
    optpipe::per_stage<std::vector<optpipe::microbatch>> forwards_;
};

} // namespace detail

/// An arbitrary order that respects all dependencies and fits the memory.
inline optpipe::order random_order(random_numbers& random, const optpipe::problem& p) {
    constexpr int attempts = 20;
    for (int i = 0; i < attempts; ++i)
        if (auto drawn = detail::order_drawer{random, p}.draw()) return *std::move(drawn);
    return one_at_a_time(p);
}

/// A few times, delays everything that starts from some instant on. A valid schedule stays valid.
inline void loosen(random_numbers& random, optpipe::schedule& s, double grid) {
    for (std::size_t i = random.below(4); i > 0; --i) {
        const auto from = s.operations[random.below(s.operations.size())].start;
        const optpipe::duration by{grid * static_cast<double>(random.between(1, 5)) / 2.0};
        for (auto& timed : s.operations)
            if (timed.start >= from) {
                timed.start += by;
                timed.end += by;
            }
    }
}

/// A valid schedule of any kind: built or random, with or without needless waiting.
inline optpipe::schedule random_schedule(random_numbers& random, const random_problem& given) {
    const auto& p = given.problem;
    const optpipe::adaptive_builder<> quick{{}, 1};
    // Builders only keep and offload.
    const bool is_classic = is_described_by_costs(p) && is_plain(p);
    auto order = random.chance(30) && is_classic ? *quick(p) : random_order(random, p);
    if (random.chance(10) && is_classic && simulate(p, optpipe::gpipe(p.graph))) order = optpipe::gpipe(p.graph);
    auto s = *simulate(p, order);
    if (random.chance(50)) loosen(random, s, given.grid);
    return s;
}

} // namespace oracle
