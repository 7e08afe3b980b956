#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/list_schedule.hpp"
#include "optpipe/schedule/dispatch/safe_memory.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe {

/// How closely an `order_dispatcher` follows an order.
struct order_dispatch_options {
    /// The number of operations of a rank among which the dispatcher chooses. If the number is 1, the dispatcher keeps
    /// the given order.
    std::size_t window = 8;
    /// An operation waits for an earlier one that gets its inputs within this share of the operation's duration.
    double patience = 0.5;
    /// Whether an operation may take memory only if every sequence in flight can still be finished afterwards.
    /// Contract: no storage option of the order offloads.
    bool careful = false;
};

/// Options measured on 15 plans for lognormal and uniform draws (8 ranks × 32 microbatches). Each plan was carried over
/// to another draw (`carry_over`). The best order of these options was 5 % shorter than the given order, in the mean.
/// Making an order with one of these options takes 0.6 ms. With a window of 32, the memory often ran out.
inline constexpr std::array<order_dispatch_options, 6> order_dispatch_choices{
    {{4, 0.0}, {4, 0.5}, {8, 0.0}, {8, 0.5}, {16, 0.0}, {16, 0.5}}};

/// The windows that are tried for an order that takes too much memory. Operations that wait for memory must not fill
/// the whole window.
inline constexpr std::array<std::size_t, 3> memory_windows{16, 64, 512};

/// Simulates a step in which each rank starts the first operation of a given order that is ready and fits. A rank looks
/// at a window of its next operations. An order made for other durations thus runs with fewer gaps. A stage that
/// belongs to a group runs its forwards in the given order. If ranks wait for each other's memory, operations are
/// missing from the result. Contract: no operation appears twice in the order, and the problem has all of the order's
/// operations.
template <pipeline_graph Graph> class order_dispatcher {
public:
    order_dispatcher(const basic_problem<Graph>& p, const std::vector<operation>& given, order_dispatch_options with)
        : p_{&p}, with_{with}, number_{p.graph}, step_{p, tolerated_limits(p)}, has_ended_(number_.size(), 0),
          queues_(p.graph.ranks()), forwards_(p.graph.stages()) {
        for (const auto& op : given) {
            queues_[p.rank_of(op.stage)].push_back(op);
            if (op.kind == operation_kind::forward) forwards_[op.stage].push_back(op.microbatch);
        }
        for (auto& each : queues_)
            std::reverse(each.begin(), each.end());
        for (auto& each : forwards_)
            std::reverse(each.begin(), each.end());
        if (with.careful) be_careful(given);
    }

    /// All operations in the order in which they started.
    [[nodiscard]] operation_list<Graph> run() {
        detail::list_schedule(step_, *this);
        return step_.take_started();
    }

    // Called by `list_schedule`.

    void serve(rank r) {
        auto& queue = queues_[r]; // in reverse: the next operation is at the end
        const auto least = queue.size() - std::min(queue.size(), with_.window);
        for (auto i = queue.size(); i-- > least;) {
            const auto op = queue[i];
            if (!may_start(op, r) || waits_for_earlier(queue, i)) continue;
            if (op.kind == operation_kind::forward) forwards_[op.stage].pop_back();
            if (safe_) safe_->start(op);
            step_.start(op, r);
            queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    void end(const operation& op, rank) {
        has_ended_[number_(op)] = 1;
        if (safe_) safe_->end(op);
    }

private:
    /// Makes the dispatcher careful, and gives `safe_` the sequences in the order of their first forwards.
    void be_careful(const std::vector<operation>& given) {
        const cell_numbering cell{p_->graph};
        std::vector<storage_index> option(cell.size(), 0);
        std::vector<unsigned char> has_entered(p_->graph.microbatches(), 0);
        std::vector<std::vector<microbatch>> sequences;
        for (const auto& op : given) {
            if (op.kind != operation_kind::forward) continue;
            option[cell(op)] = op.storage;
            const bool is_new = !p_->microbatches.slice_before(op.microbatch) && !has_entered[op.microbatch.position()];
            if (!is_new) continue;
            has_entered[op.microbatch.position()] = 1;
            sequences.emplace_back();
            for (std::optional m{op.microbatch}; m; m = p_->microbatches.slice_after(*m))
                sequences.back().push_back(*m);
        }
        safe_.emplace(*p_, sequences, [&](stage s, microbatch m) { return option[cell(s, m)]; });
    }
    bool fits(const operation& op, rank r) const {
        const auto taken = memory_effect_of(*p_, op).acquired_at_start;
        if (!(taken > memory_size{})) return true;
        const auto has_room = [&](memory_size more) { return step_.fits(r, more); };
        return has_room(taken) && (!safe_ || step_.limit(r).is_unlimited() || safe_->is_safe(op, taken, has_room));
    }
    bool may_start(const operation& op, rank r) const {
        if (!step_.is_free(op.kind, r)) return false;
        if (const auto own = own_input_of(op, stash_way_of(*p_, op)); own && !has_ended_[number_(*own)]) return false;
        if (!(arrival(op) <= step_.now() + step_.slack())) return false;
        if (op.kind == operation_kind::forward && p_->groups.has(op.stage) &&
            forwards_[op.stage].back() != op.microbatch)
            return false;
        return fits(op, r);
    }
    /// The time when the inputs from other cells arrive.
    duration arrival(const operation& op) const {
        const bool has_inputs = op.kind == operation_kind::forward || is_gradient(op.kind);
        return has_inputs ? step_.arrival(op) : duration{};
    }
    bool waits_for_earlier(const std::vector<operation>& queue, std::size_t at) const {
        if (is_transfer(queue[at].kind)) return false;
        const auto until = step_.now() + with_.patience * duration_of(*p_, queue[at]);
        for (auto i = queue.size(); i-- > at + 1;)
            if (!is_transfer(queue[i].kind) && arrival(queue[i]) < until &&
                arrival(queue[i]) > step_.now() + step_.slack())
                return true;
        return false;
    }

    const basic_problem<Graph>* p_;
    order_dispatch_options with_;
    operation_numbering<Graph> number_;
    detail::running_step<Graph> step_;
    std::vector<unsigned char> has_ended_;
    per_rank<std::vector<operation>> queues_;
    /// Microbatches whose forwards haven't started, in reverse: the next one is at the end.
    per_stage<std::vector<microbatch>> forwards_;
    /// Empty unless the dispatcher is careful.
    std::optional<safe_memory<Graph>> safe_{};
};

} // namespace optpipe
