#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/input_time.hpp"
#include "optpipe/schedule/interleave.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// How weight gradients are put between the forwards and input gradients of a rank.
struct weight_filling {
    /// A weight gradient goes into a gap that holds this share of it.
    double share = 1.0;
    /// Of the longest idle time of any rank so far, a rank doesn't fill a gap as long as it has idled less itself.
    bool spare_the_idle = false;
    friend constexpr bool operator==(const weight_filling&, const weight_filling&) = default;
};

namespace detail {

/// Plays lanes of F and I and puts each W, first in first out, where its rank waits for an input or needs its memory.
template <pipeline_graph Graph> class weight_filler {
public:
    constexpr weight_filler(const basic_problem<Graph>& p, const per_rank<memory_size, Graph::rank_extent>& budget,
                            weight_filling how)
        : p_{p}, budget_{budget}, how_{how}, slack_{tolerance{}.at(p.memory_scale())}, count_{p.graph.microbatches()},
          forward_end_(p.graph.stages() * count_, duration::unlimited()),
          gradient_end_(forward_end_.size(), duration::unlimited()), own_(p.graph.ranks()) {
        result_.graph = p.graph;
        result_.operations.reserve(3 * forward_end_.size());
    }

    constexpr outcome<basic_order<Graph>> run(const compute_lanes& lanes) {
        for (const rank r : p_.graph.all_ranks())
            for (std::size_t i = 0; i < lanes[r].size(); ++i)
                if (lanes[r][i].kind == operation_kind::backward_weight) own_[r].named_to = i;
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : p_.graph.all_ranks())
                for (auto& own = own_[r]; own.next < lanes[r].size(); ++own.next, moved = true) {
                    const auto& op = lanes[r][own.next];
                    if (op.kind == operation_kind::backward_weight) {
                        if (own.waiting()) put_weight(r);
                        own.named_from = std::min(own.named_from, own.next);
                        continue;
                    }
                    const auto ready = ready_time(op);
                    if (ready.is_unlimited()) break;
                    if (!put(r, op, ready)) return over_memory(r, op);
                }
        }
        for (const rank r : p_.graph.all_ranks()) {
            if (own_[r].next < lanes[r].size()) return in_a_circle(r);
            while (own_[r].waiting())
                put_weight(r);
        }
        return std::move(result_);
    }

private:
    struct state {
        std::size_t next = 0;
        /// From the first to the last weight gradient that the lane names.
        std::size_t named_from = dynamic;
        std::size_t named_to = 0;
        duration clock{};
        duration idle{};
        memory_size held{};
        bool begun = false;
        std::vector<operation> weights{};
        std::size_t first = 0;
        [[nodiscard]] constexpr bool waiting() const { return first < weights.size(); }
    };

    constexpr std::size_t cell(stage s, microbatch m) const { return s.position() * count_ + m.position(); }
    constexpr duration ready_time(const operation& op) const {
        return input_time(p_, op, [this](const operation& other) {
            if (other.kind == operation_kind::backward) return duration::unlimited();
            const bool is_forward = other.kind == operation_kind::forward;
            return (is_forward ? forward_end_ : gradient_end_)[cell(other.stage, other.microbatch)];
        });
    }
    constexpr duration spare(const state& own) const {
        if (!how_.spare_the_idle) return duration{};
        duration most{};
        for (const auto& other : own_)
            most = std::max(most, other.idle);
        return most - own.idle;
    }
    constexpr bool put(rank r, const operation& op, duration ready) {
        auto& own = own_[r];
        const bool named = own.next > own.named_from && own.next < own.named_to;
        while (own.waiting() && !named) {
            const auto length = p_.costs[own.weights[own.first].stage].backward_weight;
            const auto gap = ready - own.clock;
            if (gap < how_.share * length || (gap < length && gap <= spare(own)) || gap <= duration{}) break;
            put_weight(r);
        }
        const auto effect = memory_effect_of(p_.costs[op.stage], op.kind);
        while (own.held + effect.acquired_at_start > budget_[r] + slack_) {
            if (!own.waiting()) return false;
            put_weight(r);
        }
        append(own, op, ready);
        (op.kind == operation_kind::forward ? forward_end_ : gradient_end_)[cell(op.stage, op.microbatch)] = own.clock;
        if (op.kind == operation_kind::backward_input) own.weights.push_back(backward_weight(op.stage, op.microbatch));
        return true;
    }
    constexpr void put_weight(rank r) {
        auto& own = own_[r];
        append(own, own.weights[own.first++], {});
    }
    constexpr void append(state& own, const operation& op, duration ready) {
        const auto start = std::max(own.clock, ready);
        if (own.begun) own.idle += start - own.clock;
        own.begun = true;
        own.clock = start + duration_of(p_, op);
        const auto effect = memory_effect_of(p_.costs[op.stage], op.kind);
        own.held += effect.acquired_at_start;
        own.held -= effect.released_at_end;
        result_.operations.push_back(op);
    }
    constexpr refusal over_memory(rank r, const operation& op) const {
        refusal why;
        why.reason = refusal_reason::over_memory;
        why.rank = r;
        why.needed = own_[r].held + memory_effect_of(p_.costs[op.stage], op.kind).acquired_at_start;
        why.limit = budget_[r];
        return why;
    }
    constexpr refusal in_a_circle(rank r) const {
        refusal why;
        why.reason = refusal_reason::not_executable;
        why.sentence = "the ranks wait for each other in a circle";
        why.rank = r;
        why.position = own_[r].next;
        return why;
    }

    const basic_problem<Graph>& p_;
    const per_rank<memory_size, Graph::rank_extent>& budget_;
    weight_filling how_;
    memory_size slack_;
    std::size_t count_;
    std::vector<duration> forward_end_;
    std::vector<duration> gradient_end_;
    per_rank<state> own_;
    basic_order<Graph> result_{};
};

} // namespace detail

/// The order that runs each rank's forwards and input gradients as given, with the weight gradients where the rank
/// would otherwise wait for an input or would hold more than its budget. `over_memory` where that doesn't help.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>>
fill_with_weights(const basic_problem<Graph>& p, const compute_lanes& lanes,
                  const per_rank<memory_size, Graph::rank_extent>& budget, weight_filling how = {}) {
    return detail::weight_filler<Graph>{p, budget, how}.run(lanes);
}

} // namespace optpipe
