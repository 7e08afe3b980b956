#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/known_ends.hpp"
#include "optpipe/schedule/dispatch/memory_ledger.hpp"
#include "optpipe/schedule/dispatch/occupied_lanes.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The state of a step while a policy starts operations in the order of time. The state has the clock and each rank's
/// lanes and memory.
template <pipeline_graph Graph> class running_step {
public:
    using limits = per_rank<memory_size, Graph::rank_extent>;

    constexpr running_step(const basic_problem<Graph>& p, const limits& most)
        : p_{&p}, lanes_{p}, busy_(lanes_.size(), 0), ends_{p.graph}, touched_(p.graph.ranks(), 0) {
        for (const auto limit : most)
            device_.push_back(memory_ledger{limit});
    }

    [[nodiscard]] constexpr duration now() const { return now_; }
    /// The tolerance for times, because sums of durations are rounded.
    [[nodiscard]] constexpr duration slack() const { return time_share * now_; }
    /// The arrival of the inputs of `op`, without its reload and recomputation; unlimited while unknown.
    [[nodiscard]] constexpr duration arrival(const operation& op) const { return input_time(*p_, op, ends_); }
    /// The end of a forward or gradient if it has started, otherwise unlimited.
    [[nodiscard]] constexpr duration end_of(const operation& op) const { return ends_(op); }
    [[nodiscard]] constexpr bool is_free(operation_kind kind, rank r) const {
        const auto lanes = lanes_.of(kind, r);
        return !busy_[lanes.own] && !busy_[lanes.shared];
    }
    [[nodiscard]] constexpr memory_size limit(rank r) const { return device_[r.position()].limit(); }
    [[nodiscard]] constexpr bool fits(rank r, memory_size amount) const { return device_[r.position()].fits(amount); }
    /// Number of operations that have started.
    [[nodiscard]] constexpr std::size_t starts() const { return starts_; }
    /// The started operations, in the order in which they started. Contract: called once, at the end.
    [[nodiscard]] constexpr operation_list<Graph> take_started() { return std::move(started_); }

    /// Starts an operation now. Contract: the operation's lanes are free, and its memory fits.
    constexpr void start(const operation& op, rank r) {
        const auto stored = with_implied_storage(*p_, op);
        start_until(now_ + duration_of(*p_, stored), op, stored, r);
    }
    /// Starts a pair now; `of` has the pair's duration and memory. Contract: the rank's lane is free, and the pair's
    /// memory fits.
    constexpr void start(const operation_pair& pair, const overlap& of, rank r) {
        const auto end = now_ + pair_duration(*p_, of, pair.forward, pair.backward);
        auto& held = device_[r.position()];
        held.acquire(of.memory, now_);
        if (of.memory > memory_size{}) held.release(of.memory, end);
        for (const auto& op : {pair.forward, pair.backward})
            start_until(end, op, op, r);
    }
    /// Makes the policy look at the rank again: at once, or at `time`.
    constexpr void wake(rank r, duration time) {
        if (time <= now_)
            touch(r);
        else
            push({time, 0, false, r, {}});
    }
    constexpr void touch(rank r) {
        if (touched_[r.position()]) return;
        touched_[r.position()] = 1;
        queue_.push_back(r);
    }

    /// See `list_schedule`.
    template <class Policy> constexpr void run(Policy& policy, stop_check stop) {
        constexpr std::size_t between_looks = 1024; // polls every few tenths of a millisecond
        started_.reserve(5 * p_->graph.cells());
        for (const rank r : p_->graph.all_ranks())
            touch(r);
        serve(policy);
        for (std::size_t steps = 1; !events_.empty(); ++steps) {
            if (steps % between_looks == 0 && stop()) break;
            now_ = events_.front().time;
            const auto rounding = slack();
            while (!events_.empty() && events_.front().time <= now_ + rounding)
                apply(pop(), policy);
            serve(policy);
        }
    }

private:
    struct event {
        duration time{};
        std::size_t number = 0;
        bool is_end = false;
        rank where{};
        operation op{};
        friend constexpr bool operator<(const event& a, const event& b) {
            return a.time != b.time ? a.time > b.time : a.number > b.number; // makes a heap with the earliest time on
                                                                             // top
        }
    };

    /// Starts an operation that ends at `end`; `stored` is `op` with its implied storage option.
    constexpr void start_until(duration end, const operation& op, const operation& stored, rank r) {
        started_.push_back(op);
        ++starts_;
        const auto effect = memory_effect_of(*p_, stored);
        device_[r.position()].acquire(effect.acquired_at_start, now_);
        if (effect.released_at_end > memory_size{}) device_[r.position()].release(effect.released_at_end, end);
        for_each_release_of_others(*p_, op, [&](rank of, memory_size amount) {
            device_[of.position()].release(amount, end);
            if (of != r) push({end, 0, false, of, {}});
        });
        ends_.set(op, end);
        occupy(op.kind, r, 1);
        push({end, 0, true, r, op});
    }
    constexpr void push(event e) {
        e.number = pushed_++;
        events_.push_back(e);
        std::push_heap(events_.begin(), events_.end());
    }
    constexpr event pop() {
        std::pop_heap(events_.begin(), events_.end());
        const auto e = events_.back();
        events_.pop_back();
        return e;
    }
    constexpr void occupy(operation_kind kind, rank r, unsigned char busy) {
        const auto lanes = lanes_.of(kind, r);
        busy_[lanes.own] = busy_[lanes.shared] = busy;
    }
    template <class Policy> constexpr void serve(Policy& policy) {
        for (std::size_t i = 0; i < queue_.size(); ++i) {
            touched_[queue_[i].position()] = 0;
            policy.serve(queue_[i]);
        }
        queue_.clear();
    }
    template <class Policy> constexpr void apply(const event& e, Policy& policy) {
        now_ = std::max(now_, e.time);
        device_[e.where.position()].advance(now_);
        touch(e.where);
        if (!e.is_end) return;
        occupy(e.op.kind, e.where, 0);
        policy.end(e.op, e.where);
        for_each_consumer(
            *p_, e.op, [&](const operation& after, duration delay) { wake(p_->rank_of(after.stage), now_ + delay); });
    }

    static constexpr double time_share = 1e-9;

    const basic_problem<Graph>* p_;
    lane_numbering<Graph> lanes_;
    std::vector<unsigned char> busy_;
    known_ends ends_;
    std::vector<memory_ledger> device_{};
    duration now_{};
    std::size_t pushed_ = 0;
    std::vector<event> events_{};
    /// The ranks for the policy to serve (`queue_`), and for each rank, whether it is in the queue (`touched_`).
    std::vector<rank> queue_{};
    std::vector<unsigned char> touched_;
    operation_list<Graph> started_{};
    std::size_t starts_ = 0;
};

/// List scheduling in the order of time. When an operation ends or an input arrives, `policy.serve(rank)` starts the
/// possible operations (`running_step::start`). At the end of each operation, `policy.end(operation, rank)` is called.
/// `stop` is polled. After `stop` has returned true, no further operations start.
template <pipeline_graph Graph, class Policy>
constexpr void list_schedule(running_step<Graph>& step, Policy& policy, stop_check stop = {}) {
    step.run(policy, stop);
}

} // namespace optpipe::detail
