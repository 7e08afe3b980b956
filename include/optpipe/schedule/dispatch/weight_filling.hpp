#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// How weight gradients are inserted between the forwards and input gradients of a rank.
struct weight_filling {
    /// A weight gradient is inserted into a gap only if at least this share of it, from 0 to 1, fits.
    double share = 1.0;
    /// Whether a rank idles in a gap that is shorter than the weight gradient, unless the rank would then have idled
    /// longer than every other rank.
    bool spare_the_idle = false;
    friend constexpr bool operator==(const weight_filling&, const weight_filling&) = default;
};

namespace detail {

/// Simulates lanes of forwards and input gradients, and inserts the weight gradients of each rank in FIFO order. A
/// weight gradient is inserted where the rank waits for an input, or needs the memory that the weight gradient frees.
template <pipeline_graph Graph> class weight_filler {
public:
    constexpr weight_filler(const basic_problem<Graph>& p, const per_rank<memory_size, Graph::rank_extent>& budget,
                            weight_filling how)
        : p_{p}, budget_{budget}, how_{how}, own_{p, budget} {}

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
                        if (own.has_weight()) own_.put_weight(r);
                        own.named_from = std::min(own.named_from, own.next);
                        continue;
                    }
                    const auto ready = own_.arrival(op);
                    if (ready.is_unlimited()) break;
                    if (!put(r, op, ready)) return over_memory(r, op);
                }
        }
        for (const rank r : p_.graph.all_ranks()) {
            if (own_[r].next < lanes[r].size()) return in_a_cycle(r);
            own_.put_all_weights(r);
        }
        return std::move(own_).take();
    }

private:
    struct state : lane_builder {
        std::size_t next = 0;
        /// The positions of the first and the last weight gradient that the lane contains.
        std::size_t named_from = dynamic;
        std::size_t named_to = 0;
    };

    constexpr duration spare(const state& own) const {
        return how_.spare_the_idle ? own_.longest_idle() - own.idle : duration{};
    }
    constexpr bool put(rank r, const operation& op, duration ready) {
        auto& own = own_[r];
        const bool named = own.next > own.named_from && own.next < own.named_to;
        while (own.has_weight() && !named) {
            const auto length = duration_of(p_, own.first_weight());
            const auto gap = ready - own.clock;
            if (gap < how_.share * length || (gap < length && gap <= spare(own)) || gap <= duration{}) break;
            own_.put_weight(r);
        }
        if (!own_.make_room(r, memory_effect_of(p_, op).acquired_at_start)) return false;
        own_.put(op, ready);
        return true;
    }
    constexpr refusal over_memory(rank r, const operation& op) const {
        refusal why;
        why.reason = refusal_reason::over_memory;
        why.rank = r;
        why.needed = own_[r].held + memory_effect_of(p_, op).acquired_at_start;
        why.limit = budget_[r];
        return why;
    }
    constexpr refusal in_a_cycle(rank r) const {
        refusal why;
        why.reason = refusal_reason::not_executable;
        why.sentence = "the ranks wait for each other in a cycle";
        why.rank = r;
        why.position = own_[r].next;
        return why;
    }

    const basic_problem<Graph>& p_;
    const per_rank<memory_size, Graph::rank_extent>& budget_;
    weight_filling how_;
    lane_builders<Graph, state> own_;
};

} // namespace detail

/// The order that runs each rank's forwards and input gradients as given. Weight gradients are inserted where the rank
/// would otherwise wait for an input or exceed its budget. Refused (`over_memory`) if a rank can't stay within its
/// budget.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>>
fill_with_weights(const basic_problem<Graph>& p, const compute_lanes& lanes,
                  const per_rank<memory_size, Graph::rank_extent>& budget, weight_filling how = {}) {
    return detail::weight_filler<Graph>{p, budget, how}.run(lanes);
}

} // namespace optpipe
