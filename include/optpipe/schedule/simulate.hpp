#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {
namespace detail {

/// Memory of one rank while operations are placed in an order: acquisitions come with rising times, releases in one
/// queue per lane, each with rising times.
class memory_ledger {
public:
    constexpr memory_ledger() = default;
    constexpr explicit memory_ledger(memory_size limit) : limit_{limit} {}

    /// The earliest time not before `t`, nor before the last acquisition, at which `amount` fits; unlimited if it never
    /// will by what has been promised so far.
    constexpr duration fit(memory_size amount, duration t) {
        t = std::max(t, last_);
        while (const release* next = earliest())
            if (next->time <= t || level_ + amount > limit_) {
                t = std::max(t, next->time);
                take(*next);
            } else {
                break;
            }
        return level_ + amount > limit_ ? duration::unlimited() : t;
    }
    constexpr void acquire(memory_size amount, duration t) {
        level_ += amount;
        last_ = t;
    }
    constexpr void promise(std::size_t which, memory_size amount, duration t) {
        lanes_[which].queue.push_back({t, amount});
    }

private:
    struct release {
        duration time;
        memory_size amount;
    };
    struct lane {
        std::vector<release> queue{};
        std::size_t head = 0;
    };

    constexpr const release* earliest() const {
        const release* first = nullptr;
        for (const auto& l : lanes_)
            if (l.head < l.queue.size() && (!first || l.queue[l.head].time < first->time)) first = &l.queue[l.head];
        return first;
    }
    constexpr void take(const release& r) {
        for (auto& l : lanes_)
            if (l.head < l.queue.size() && &l.queue[l.head] == &r) {
                level_ -= r.amount;
                ++l.head;
                return;
            }
    }

    memory_size limit_ = memory_size::unlimited();
    memory_size level_{};
    duration last_{};
    lane lanes_[2]{};
};

} // namespace detail

/// Places operations one after the other, each as early as the rules of spec.md and all that was placed before allow:
/// inputs, its compute lane, copy engine and link, device and host memory. On every lane, link and memory the order of
/// the calls is kept. O(1) amortized per operation.
template <pipeline_graph Graph> class placer {
public:
    constexpr explicit placer(const basic_problem<Graph>& p, tolerance t = {})
        : problem_{&p}, number_{p.graph}, ends_(number_.size(), duration::unlimited()), compute_free_(p.graph.ranks()),
          engine_free_(2 * p.graph.ranks()), link_free_(2 * p.graph.ranks()) {
        const auto slack = t.at(p.memory_scale());
        for (const rank r : p.graph.all_ranks()) {
            device_.push_back(detail::memory_ledger{p.memory_limit[r] + slack});
            host_.push_back(detail::memory_ledger{p.host_memory_limit[r] + slack});
        }
        result_.graph = p.graph;
        result_.operations.reserve(5 * p.graph.stages() * p.graph.microbatches());
    }

    /// Why the operation can't come next; no reason if it can. After an obstacle of memory the placer is spent: what
    /// would be freed has been looked through.
    enum class obstacle { none, unknown, twice, input_missing, memory, host_memory };

    constexpr obstacle place(const operation& op) {
        const auto& p = *problem_;
        if (!number_.contains(op) || (is_transfer(op.kind) && !p.costs[op.stage].can_offload()))
            return obstacle::unknown;
        if (done(op)) return obstacle::twice;
        const auto ready = input_time(op);
        if (ready.is_unlimited()) return obstacle::input_missing;

        const rank r = p.rank_of(op.stage);
        const auto effect = memory_effect_of(p.costs[op.stage], op.kind);
        auto start = std::max(ready, lane_free(op, r));
        if (effect.host_acquired_at_start > memory_size{}) {
            start = host_[r.position()].fit(effect.host_acquired_at_start, start);
            if (start.is_unlimited()) return obstacle::host_memory;
        }
        if (effect.acquired_at_start > memory_size{}) {
            start = device_[r.position()].fit(effect.acquired_at_start, start);
            if (start.is_unlimited()) return obstacle::memory;
        }
        commit(op, r, effect, start);
        return obstacle::none;
    }

    [[nodiscard]] constexpr bool done(const operation& op) const { return !ends_[number_(op)].is_unlimited(); }
    [[nodiscard]] constexpr const basic_schedule<Graph>& result() const& { return result_; }
    [[nodiscard]] constexpr basic_schedule<Graph>&& result() && {
        return static_cast<basic_schedule<Graph>&&>(result_);
    }

private:
    constexpr duration end_of(stage s, operation_kind kind, microbatch m) const { return ends_[number_({s, kind, m})]; }
    constexpr duration gradient_end(stage s, microbatch m) const {
        return std::min(end_of(s, operation_kind::backward_input, m), end_of(s, operation_kind::backward, m));
    }
    constexpr bool has(stage s, operation_kind kind, microbatch m) const { return !end_of(s, kind, m).is_unlimited(); }

    /// When all that it needs is there; unlimited while something of it hasn't been placed.
    constexpr duration input_time(const operation& op) const {
        const auto& p = *problem_;
        const stage s = op.stage;
        const microbatch m = op.microbatch;
        constexpr auto never = duration::unlimited();
        switch (op.kind) {
        case operation_kind::forward:
            return p.is_first(s) ? duration{}
                                 : end_of(s.previous(), operation_kind::forward, m) + p.hop(s.previous(), s);
        case operation_kind::backward_input:
        case operation_kind::backward: {
            if (!gradient_end(s, m).is_unlimited() || (op.kind == operation_kind::backward_input && !p.split_backward))
                return never;
            const bool away = has(s, operation_kind::offload, m);
            const auto stash = end_of(s, away ? operation_kind::reload : operation_kind::forward, m);
            return p.is_last(s) ? stash : std::max(stash, gradient_end(s.next(), m) + p.hop(s.next(), s));
        }
        case operation_kind::backward_weight: return end_of(s, operation_kind::backward_input, m);
        case operation_kind::offload:
            return gradient_end(s, m).is_unlimited() ? end_of(s, operation_kind::forward, m) : never;
        case operation_kind::reload: return end_of(s, operation_kind::offload, m);
        }
        return never;
    }

    constexpr bool inward(const operation& op) const { return op.kind == operation_kind::reload; }
    constexpr duration& engine(const operation& op, rank r) {
        return engine_free_[2 * r.position() + (problem_->transfer.engines == 2 && inward(op) ? 1 : 0)];
    }
    constexpr duration& link(const operation& op, rank r) {
        return link_free_[2 * problem_->transfer.link[r] +
                          (problem_->transfer.duplex == duplex_kind::full && inward(op) ? 1 : 0)];
    }
    constexpr duration lane_free(const operation& op, rank r) {
        return is_transfer(op.kind) ? std::max(engine(op, r), link(op, r)) : compute_free_[r];
    }

    constexpr void commit(const operation& op, rank r, const memory_effect& effect, duration start) {
        const auto end = start + duration_of(*problem_, op);
        ends_[number_(op)] = end;
        const std::size_t lane = is_transfer(op.kind) ? 1 : 0;
        if (is_transfer(op.kind))
            engine(op, r) = link(op, r) = end;
        else
            compute_free_[r] = end;
        auto& device = device_[r.position()];
        auto& host = host_[r.position()];
        if (effect.acquired_at_start > memory_size{}) device.acquire(effect.acquired_at_start, start);
        if (effect.released_at_end > memory_size{}) device.promise(lane, effect.released_at_end, end);
        if (effect.host_acquired_at_start > memory_size{}) host.acquire(effect.host_acquired_at_start, start);
        if (effect.host_released_at_end > memory_size{}) host.promise(lane, effect.host_released_at_end, end);
        result_.operations.push_back({op, start, end});
    }

    const basic_problem<Graph>* problem_;
    operation_numbering<Graph> number_;
    std::vector<duration> ends_;
    per_rank<duration, Graph::rank_extent> compute_free_;
    std::vector<duration> engine_free_;
    std::vector<duration> link_free_;
    std::vector<detail::memory_ledger> device_{};
    std::vector<detail::memory_ledger> host_{};
    basic_schedule<Graph> result_{};
};

/// The most that each rank must hold when nothing is waited for but what the order itself puts earlier: the least
/// limits with which `simulate` can give the order times.
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_rank<memory_size, Graph::rank_extent>
memory_needed(const basic_problem<Graph>& p, const basic_order<Graph>& given, memory_kind which = memory_kind::device) {
    per_rank<memory_size, Graph::rank_extent> level(p.graph.ranks());
    auto peak = level;
    for (const auto& op : given.operations) {
        const rank r = p.rank_of(op.stage);
        const auto effect = memory_effect_of(p.costs[op.stage], op.kind);
        const bool device = which == memory_kind::device;
        level[r] += device ? effect.acquired_at_start : effect.host_acquired_at_start;
        peak[r] = std::max(peak[r], level[r]);
        level[r] -= device ? effect.released_at_end : effect.host_released_at_end;
    }
    return peak;
}

namespace detail {

constexpr refusal not_executable(std::string_view sentence, std::size_t position) {
    refusal why;
    why.reason = refusal_reason::not_executable;
    why.sentence = sentence;
    why.position = position;
    return why;
}

/// Names the rank that misses most.
template <pipeline_graph Graph>
constexpr refusal memory_refusal(const basic_problem<Graph>& p, const basic_order<Graph>& given, memory_kind which) {
    const bool device = which == memory_kind::device;
    const auto needed = memory_needed(p, given, which);
    const auto& limits = device ? p.memory_limit : p.host_memory_limit;
    refusal why;
    why.reason = device ? refusal_reason::over_memory : refusal_reason::over_host_memory;
    for (const rank r : p.graph.all_ranks())
        if (r.value() == 0 || needed[r] - limits[r] > why.needed - why.limit) {
            why.rank = r;
            why.needed = needed[r];
            why.limit = limits[r];
        }
    return why;
}

} // namespace detail

/// Gives an order its earliest times: every operation as early as the rules of spec.md allow when each lane, link and
/// memory keeps the order. Waits for memory where the order says what will free it.
///
/// Never later than any valid schedule that starts its operations in this order. An order that lacks operations, has
/// one twice, or lets one come before what it needs is `not_executable`; one that needs more memory than there is says
/// which rank lacks how much. O(number of operations).
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>> simulate(const basic_problem<Graph>& p,
                                                                const basic_order<Graph>& given) {
    using obstacle = typename placer<Graph>::obstacle;
    placer<Graph> place{p};
    std::size_t begun = 0;
    std::size_t finished = 0;
    std::size_t away = 0;
    for (std::size_t i = 0; i < given.operations.size(); ++i) {
        const auto& op = given.operations[i];
        switch (place.place(op)) {
        case obstacle::none: break;
        case obstacle::unknown:
            return detail::not_executable(
                "an operation that the problem doesn't have: no such stage or microbatch, or a "
                "stage that can't be offloaded",
                i);
        case obstacle::twice: return detail::not_executable("an operation stands twice", i);
        case obstacle::input_missing: return detail::not_executable("an operation comes before what it needs", i);
        case obstacle::memory: return detail::memory_refusal(p, given, memory_kind::device);
        case obstacle::host_memory: return detail::memory_refusal(p, given, memory_kind::host);
        }
        begun += op.kind == operation_kind::forward ? 1 : 0;
        finished += op.kind == operation_kind::backward || op.kind == operation_kind::backward_weight ? 1 : 0;
        away += op.kind == operation_kind::offload ? 1 : 0;
        away -= op.kind == operation_kind::reload ? 1 : 0;
    }
    const auto all = p.graph.stages() * p.graph.microbatches();
    if (begun != all || finished != all || away != 0)
        return detail::not_executable("operations are missing", given.operations.size());
    return static_cast<placer<Graph>&&>(place).result();
}

/// Starts the forwards before each rank's first backward as late as everything after them allows, and leaves all else:
/// a rank that starts later is engaged for a shorter time, and holds its stashes for less (PipeOffload does the same
/// before it places transfers).
template <pipeline_graph Graph>
constexpr void postpone_warm_up(const basic_problem<Graph>& p, basic_schedule<Graph>& s) {
    const operation_numbering<Graph> number{p.graph};
    std::vector<duration> start_of(number.size(), duration::unlimited());
    per_rank<duration, Graph::rank_extent> first_backward(p.graph.ranks(), duration::unlimited());
    for (const auto& timed : s.operations) {
        start_of[number(timed.op)] = timed.start;
        auto& first = first_backward[p.rank_of(timed.op.stage)];
        if (!is_transfer(timed.op.kind) && timed.op.kind != operation_kind::forward)
            first = std::min(first, timed.start);
    }
    std::vector<std::size_t> warm_up;
    for (std::size_t i = 0; i < s.operations.size(); ++i) {
        const auto& timed = s.operations[i];
        if (timed.op.kind == operation_kind::forward && timed.start <= first_backward[p.rank_of(timed.op.stage)])
            warm_up.push_back(i);
    }
    std::sort(warm_up.begin(), warm_up.end(),
              [&](std::size_t a, std::size_t b) { return starts_before(s.operations[b], s.operations[a]); });
    auto next_on_lane = first_backward;
    for (const auto i : warm_up) {
        auto& timed = s.operations[i];
        const auto [at, kind, m] = timed.op;
        const rank r = p.rank_of(at);
        auto latest_end = next_on_lane[r];
        for (const auto after : {operation_kind::offload, operation_kind::backward_input, operation_kind::backward})
            latest_end = std::min(latest_end, start_of[number({at, after, m})]);
        if (!p.is_last(at))
            latest_end = std::min(latest_end, start_of[number(forward(at.next(), m))] - p.hop(at, at.next()));
        const auto length = timed.end - timed.start;
        if (latest_end > timed.end) {
            timed.start = latest_end - length;
            timed.end = latest_end;
        }
        start_of[number(timed.op)] = next_on_lane[r] = timed.start;
    }
}

} // namespace optpipe
