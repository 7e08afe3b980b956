#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/known_ends.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The duration of a computation, and its effect on the memory of its rank.
struct lane_costs {
    duration length{};
    memory_size acquired{};
    memory_size released{};
};
template <pipeline_graph Graph> constexpr lane_costs lane_costs_of(const basic_problem<Graph>& p, const operation& op) {
    const auto effect = memory_effect_of(p, op);
    return {duration_of(p, op), effect.acquired_at_start, effect.released_at_end};
}

/// The compute lane of one rank. Operations are appended one at a time, each as early as its input and the lane allow.
struct lane_builder {
    /// The end of the last operation.
    duration clock{};
    /// The idle time since the first operation.
    duration idle{};
    memory_size held{};
    bool has_started = false;
    /// Weight gradients whose input gradients are done, in FIFO order. The weight gradients before `next_weight` are
    /// done, too.
    std::vector<operation> weights{};
    std::size_t next_weight = 0;

    [[nodiscard]] constexpr std::size_t waiting_weights() const { return weights.size() - next_weight; }
    [[nodiscard]] constexpr bool has_weight() const { return waiting_weights() > 0; }
    [[nodiscard]] OPTPIPE_CONSTEXPR const operation& first_weight() const { return weights[next_weight]; }
    /// Removes and returns the first waiting weight gradient, which the caller appends.
    OPTPIPE_CONSTEXPR operation take_weight() { return weights[next_weight++]; }

    /// Appends `op`, whose input is ready at `ready`. Returns the start of `op`.
    constexpr duration append(const operation& op, const lane_costs& costs, duration ready) {
        const auto start = std::max(clock, ready);
        if (has_started) idle += start - clock;
        has_started = true;
        clock = start + costs.length;
        held += costs.acquired;
        held -= costs.released;
        if (op.kind == operation_kind::backward_input) weights.push_back(sibling(op, operation_kind::backward_weight));
        return start;
    }
};

/// The compute lanes of all ranks while an order is made within a memory budget. `Lane` is a `lane_builder` with the
/// state of the policy that appends the operations.
template <pipeline_graph Graph, class Lane> class lane_builders {
public:
    constexpr lane_builders(const basic_problem<Graph>& p, const per_rank<memory_size, Graph::rank_extent>& budget)
        : p_{p}, budget_{budget}, slack_{tolerance{}.at(p.memory_scale())}, is_simple_{p.is_simple()}, ends_{p.graph},
          lanes_(p.graph.ranks()) {
        made_.graph = p.graph;
        made_.operations.reserve(3 * p.graph.cells());
        for (const stage s : p.graph.all_stages())
            for (const auto kind : usual_kinds)
                usual_costs_.push_back(lane_costs_of(p, {s, kind, microbatch{}}));
    }
    /// Removes all operations. The memory of the lists is kept.
    constexpr void clear() {
        ends_.clear();
        made_.operations.clear();
        for (auto& lane : lanes_) {
            auto weights = std::move(lane.weights);
            weights.clear();
            lane = {};
            lane.weights = std::move(weights);
        }
    }

    [[nodiscard]] constexpr Lane& operator[](rank r) { return lanes_[r]; }
    [[nodiscard]] constexpr const Lane& operator[](rank r) const { return lanes_[r]; }
    [[nodiscard]] constexpr auto begin() const { return lanes_.begin(); }
    [[nodiscard]] constexpr auto end() const { return lanes_.end(); }

    /// The time when the inputs of `op` arrive; unlimited while unknown.
    [[nodiscard]] constexpr duration arrival(const operation& op) const {
        return input_time(p_, op, ends_, {}, is_simple_);
    }
    [[nodiscard]] constexpr lane_costs costs_of(const operation& op) const {
        const auto kind = static_cast<std::size_t>(op.kind);
        const bool is_usual = is_simple_ && op.storage == 0 && kind < usual_kinds.size();
        return is_usual ? usual_costs_[usual_kinds.size() * op.stage.position() + kind] : lane_costs_of(p_, op);
    }
    /// The most memory that the rank may hold.
    [[nodiscard]] constexpr memory_size limit(rank r) const { return budget_[r] + slack_; }
    [[nodiscard]] constexpr duration longest_idle() const {
        duration longest{};
        for (const lane_builder& one : lanes_)
            longest = std::max(longest, one.idle);
        return longest;
    }

    /// Appends `op`, whose inputs are ready at `ready`.
    constexpr void put(const operation& op, duration ready) { put(p_.rank_of(op.stage), op, costs_of(op), ready); }
    constexpr void put(rank r, const operation& op, const lane_costs& costs, duration ready) {
        auto& own = lanes_[r];
        const auto start = own.append(op, costs, ready);
        ends_.set(op, own.clock);
        made_.operations.push_back({op, start, own.clock});
    }
    /// Appends the first waiting weight gradient.
    constexpr void put_weight(rank r) {
        const auto op = lanes_[r].take_weight();
        put(r, op, costs_of(op), {});
    }
    /// Appends weight gradients until there is room. Returns whether there is room in the end.
    constexpr bool make_room(rank r, memory_size amount) {
        auto& own = lanes_[r];
        while (own.held + amount > limit(r) && own.has_weight())
            put_weight(r);
        return own.held + amount <= limit(r);
    }
    constexpr void put_all_weights(rank r) {
        while (lanes_[r].has_weight())
            put_weight(r);
    }
    /// All appended operations, in the order of the calls.
    [[nodiscard]] constexpr const basic_schedule<Graph>& made() const { return made_; }
    [[nodiscard]] constexpr basic_schedule<Graph> take() && { return std::move(made_); }

private:
    /// The first kinds of operations. If microbatches are equal, `usual_costs_` has their costs.
    static constexpr std::array usual_kinds{operation_kind::forward, operation_kind::backward_input,
                                            operation_kind::backward_weight, operation_kind::backward};
    static_assert(usual_kinds.back() == operation_kind{usual_kinds.size() - 1});

    const basic_problem<Graph>& p_;
    const per_rank<memory_size, Graph::rank_extent>& budget_;
    memory_size slack_;
    bool is_simple_;
    /// The costs of each stage's operations of `usual_kinds` with the first storage option.
    std::vector<lane_costs> usual_costs_{};
    known_ends ends_;
    per_rank<Lane, Graph::rank_extent> lanes_;
    basic_schedule<Graph> made_{};
};

} // namespace optpipe::detail
