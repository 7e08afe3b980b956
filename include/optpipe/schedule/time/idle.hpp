#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe {

/// The reason why a rank computes nothing for a while.
enum class idle_cause {
    /// The time before the rank's first operation.
    start,
    /// The time after the rank's last operation, until the step ends.
    end,
    /// No operation has all its inputs: a result of another rank is missing.
    neighbour,
    /// No operation has all its inputs: the next operation waits for a reload.
    copy,
    /// Operations have their inputs, but none of them fits in memory yet.
    memory,
    /// An operation could run, but the schedule runs another operation first.
    sequence
};
inline constexpr std::array all_idle_causes{idle_cause::start, idle_cause::end,    idle_cause::neighbour,
                                            idle_cause::copy,  idle_cause::memory, idle_cause::sequence};

[[nodiscard]] constexpr const char* name_of(idle_cause cause) {
    switch (cause) {
    case idle_cause::start: return "start";
    case idle_cause::end: return "end";
    case idle_cause::neighbour: return "neighbour";
    case idle_cause::copy: return "copy";
    case idle_cause::memory: return "memory";
    case idle_cause::sequence: return "sequence";
    }
    return "";
}

/// A time in which a rank computes nothing, with a single cause.
struct idle_time {
    optpipe::rank rank{};
    idle_cause cause{};
    duration from{};
    duration to{};
    /// The operation that ends the gap; empty for the gap at the end of the step.
    std::optional<operation> next{};

    [[nodiscard]] constexpr duration length() const { return to - from; }
};

namespace detail {

/// Finds the gaps in one rank's compute lane, and divides them by cause.
template <pipeline_graph Graph> class idle_finder {
public:
    using index = std::size_t;

    /// `lane` has the rank's computations in the order of time. Call `find_inputs` before `find_gaps`.
    idle_finder(const basic_problem<Graph>& p, rank r, std::vector<timed_operation> lane,
                std::vector<memory_point> memory, memory_size limit)
        : problem_{&p}, rank_{r}, lane_{std::move(lane)}, memory_{std::move(memory)}, limit_{limit},
          ready_(lane_.size()), copied_(lane_.size(), false), by_ready_(lane_.size()) {}

    template <class EndOf, class WayOf> void find_inputs(const EndOf& end_of, const WayOf& way_of) {
        for (index i = 0; i < lane_.size(); ++i) {
            const auto& op = lane_[i].op;
            ready_[i] = input_time(*problem_, op, end_of, way_of(op));
            const auto own = own_input_of(op, way_of(op));
            copied_[i] = own && own->kind == operation_kind::reload && end_of(*own) >= ready_[i];
            by_ready_[i] = i;
        }
        for (index i = 1; i < lane_.size(); ++i)
            if (is_second_part(lane_[i].op)) join_pair(i - 1, i);
        std::sort(by_ready_.begin(), by_ready_.end(), [&](index a, index b) { return ready_[a] < ready_[b]; });
    }

    /// Appends the gaps until `last`, the end of the step, to `gaps`.
    void find_gaps(duration last, duration slack, std::vector<idle_time>& gaps) {
        gaps_ = &gaps;
        const auto rounding = tolerance{1e-12}.at(last);
        duration free{};
        for (index i = 0; i < lane_.size(); ++i) {
            const auto start = lane_[i].start;
            if (i == 0 && start > free) add(idle_cause::start, free, start, i);
            if (i > 0 && start - free > rounding) divide(free, start, i, slack);
            free = std::max(free, lane_[i].end);
        }
        if (last > free) add(idle_cause::end, free, last, lane_.size());
    }

private:
    /// Gives both parts of a pair the same ready time.
    void join_pair(index first, index second) {
        const auto later = ready_[first] < ready_[second] ? second : first;
        copied_[first] = copied_[second] = copied_[later];
        ready_[first] = ready_[second] = ready_[later];
    }

    void add(idle_cause cause, duration from, duration to, index next) {
        const auto op = next < lane_.size() ? std::optional{lane_[next].op} : std::nullopt;
        const bool continues = !gaps_->empty() && gaps_->back().rank == rank_ && gaps_->back().cause == cause &&
                               gaps_->back().to == from && gaps_->back().next == op;
        if (continues)
            gaps_->back().to = to;
        else
            gaps_->push_back({rank_, cause, from, to, op});
    }

    /// Divides the gap before `next` where an operation gets its inputs, and where memory changes. Times that differ by
    /// at most `slack` count as equal.
    void divide(duration from, duration to, index next, duration slack) {
        for (auto now = from; now < to;) {
            const auto known = now + slack;
            take_ready(known);
            auto until = to;
            if (taken_ < by_ready_.size()) until = std::min(until, ready_[by_ready_[taken_]]);
            if (const auto change = next_change(known); change) until = std::min(until, *change);
            if (to - until <= slack) until = to;
            add(cause_at(known, next), now, until, next);
            now = until;
        }
    }

    idle_cause cause_at(duration now, index next) {
        std::erase_if(waiting_, [&](index i) { return i < next; });
        if (waiting_.empty()) return copied_[next] ? idle_cause::copy : idle_cause::neighbour;
        const bool any_fits = std::any_of(waiting_.begin(), waiting_.end(), [&](index i) { return fits(i, now); });
        return any_fits ? idle_cause::sequence : idle_cause::memory;
    }

    void take_ready(duration now) {
        for (; taken_ < by_ready_.size() && ready_[by_ready_[taken_]] <= now; ++taken_)
            waiting_.push_back(by_ready_[taken_]);
    }

    /// Whether an operation's memory fits from `now` until its start in the schedule.
    bool fits(index i, duration now) const {
        const auto amount = memory_effect_of(*problem_, lane_[i].op).acquired_at_start;
        if (amount <= memory_size{}) return true;
        auto at = point_after(now);
        const auto level = at == memory_.begin() ? memory_size{} : (at - 1)->level;
        const auto until = std::lower_bound(at, memory_.end(), lane_[i].start,
                                            [](const memory_point& point, duration t) { return point.time < t; });
        return level + amount <= limit_ &&
               std::none_of(at, until, [&](const memory_point& point) { return point.level + amount > limit_; });
    }

    std::vector<memory_point>::const_iterator point_after(duration t) const {
        return std::upper_bound(memory_.begin(), memory_.end(), t,
                                [](duration time, const memory_point& point) { return time < point.time; });
    }
    std::optional<duration> next_change(duration t) const {
        const auto at = point_after(t);
        return at == memory_.end() ? std::nullopt : std::optional{at->time};
    }

    const basic_problem<Graph>* problem_;
    rank rank_;
    std::vector<timed_operation> lane_;
    std::vector<memory_point> memory_;
    memory_size limit_;
    /// The time at which all inputs of each operation are ready.
    std::vector<duration> ready_;
    /// Whether the last input of each operation is a transfer.
    std::vector<bool> copied_;
    /// Positions of operations in the lane, sorted by `ready_`. The first `taken_` positions have been moved to
    /// `waiting_`.
    std::vector<index> by_ready_;
    std::size_t taken_ = 0;
    /// Positions of operations that have their inputs and haven't started.
    std::vector<index> waiting_;
    std::vector<idle_time>* gaps_ = nullptr;
};

} // namespace detail

/// The times in which ranks compute nothing, sorted by rank and start. The idle times of a rank sum to the makespan
/// minus the rank's computations, up to rounding. Contract: the schedule is valid.
///
/// A gap is divided where an operation gets its inputs, and where memory changes. The cause is `memory` if a rank waits
/// for a gradient and has no memory for another forward. Takes O(n log n) for n operations, if few of a rank's
/// operations are ready and wait at any time.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<idle_time> idle_times(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                                tolerance t = {}) {
    const operation_numbering<Graph> number{p.graph};
    const cell_numbering cell{p.graph};
    std::vector<duration> ends(number.size(), duration::unlimited());
    std::vector<storage_index> stored(cell.size(), storage_index{});
    for (const auto& timed : s.operations) {
        ends[number(timed.op)] = timed.end;
        if (timed.op.kind == operation_kind::forward) stored[cell(timed.op)] = timed.op.storage;
    }
    const auto end_of = [&](const operation& op) { return ends[number(op)]; };
    const auto way_of = [&](operation op) {
        op.storage = stored[cell(op)];
        return waits_for_stash(op.kind) ? stash_way_of(p, op) : stash_way{};
    };
    const auto slack = time_slack(p, s, t);
    const auto memory_slack = t.at(p.memory_scale());
    const auto last = measure(p, s, t).makespan;
    auto lanes = operations_by_rank(s);
    auto memory = detail::curves_of(p, s, memory_kind::device, slack);
    std::vector<idle_time> gaps;
    for (const rank r : p.graph.all_ranks()) {
        std::erase_if(lanes[r], [](const timed_operation& timed) { return is_transfer(timed.op.kind); });
        detail::idle_finder<Graph> finder{p, r, std::move(lanes[r]), std::move(memory[r]),
                                          p.memory_limit[r] + memory_slack};
        finder.find_inputs(end_of, way_of);
        finder.find_gaps(last, slack, gaps);
    }
    return gaps;
}

/// The total time that a rank is idle for each cause.
struct idle_sums {
    std::array<duration, all_idle_causes.size()> by_cause{};

    constexpr duration& operator[](idle_cause cause) { return by_cause[static_cast<std::size_t>(cause)]; }
    constexpr const duration& operator[](idle_cause cause) const { return by_cause[static_cast<std::size_t>(cause)]; }
    [[nodiscard]] constexpr duration total() const {
        duration sum{};
        for (const auto each : by_cause)
            sum += each;
        return sum;
    }
};

[[nodiscard]] inline per_rank<idle_sums> sum_by_cause(std::size_t ranks, const std::vector<idle_time>& gaps) {
    per_rank<idle_sums> sums(ranks);
    for (const auto& gap : gaps)
        sums[gap.rank][gap.cause] += gap.length();
    return sums;
}

} // namespace optpipe
