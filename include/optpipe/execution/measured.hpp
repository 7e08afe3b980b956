#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/differences.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe {

/// One rank's program, and the times of its instructions (`runner::times`).
struct rank_times {
    const rank_program* program = nullptr;
    std::vector<execution::task_times> times;
};

/// The measured schedule in the problem's time units, from the start of the first operation. The result can be compared
/// with the planned schedule.
[[nodiscard]] schedule measured_schedule(const any_graph& graph, std::span<const rank_times> ranks,
                                         clock_time time_unit);

/// Largest number of bytes of an arena in use at once. A buffer is in use from its first instruction's start to its
/// last instruction's end. Memory freed at an instant can be reused at the same instant. Only buffers whose
/// instructions were measured count. If no instruction was measured, the result is 0.
[[nodiscard]] std::size_t high_water(const rank_times& r, memory_arena arena);

/// Durations of the messages along edges. A message's duration begins when both ends are ready. Messages with an
/// unmeasured end are left out. Each duration is divided by the edge's size and the microbatch's factor. Messages of
/// one exchange have the same end. Negative durations count as 0.
[[nodiscard]] std::vector<cost_sample<rank_pair>> message_times(const problem& p, std::span<const rank_times> ranks,
                                                                clock_time time_unit);

/// Compares the planned durations of messages with the measured ones.
[[nodiscard]] time_difference compare_messages(const problem& p, std::span<const rank_times> ranks,
                                               clock_time time_unit);

/// Durations of the reductions of each stage, for `simulate_reductions`. 0 if a reduction wasn't measured. A duration
/// includes the wait for other pipelines.
[[nodiscard]] per_stage<duration> reduction_times(std::span<const rank_times> ranks, clock_time time_unit);

/// Adds the measurements of some or all ranks in a step: operations, messages and memory. `bytes_per_unit` converts a
/// rank's peak to the problem's unit of memory.
void add_step(cost_profile& profile, const problem& p, std::uint64_t step, std::span<const rank_times> ranks,
              clock_time time_unit, double bytes_per_unit);

} // namespace optpipe

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/container.hpp"
#include "optpipe/program/planned_message.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>
#include <utility>

namespace optpipe {
namespace detail {

/// Calls `visit(operation, times)` for all computations and copies that were measured. The forward and the backward of
/// a pair both have the times of the pair.
template <class Visit> void for_each_operation(std::span<const rank_times> ranks, const Visit& visit) {
    for (const auto& r : ranks)
        for (std::size_t i = 0; i < r.times.size(); ++i) {
            const auto& now = r.program->instructions[i];
            if (now.kind != instruction_kind::compute && now.kind != instruction_kind::copy) continue;
            for_each_operation_of(*r.program, now, [&](const operation_buffers& each) { visit(each.op, r.times[i]); });
        }
}
/// Calls `visit(part, rank, times)` for each measured message end on `side`.
template <class Visit>
void for_each_end(std::span<const rank_times> ranks, exchange_part::side_kind side, const Visit& visit) {
    for (const auto& r : ranks)
        for (std::size_t i = 0; i < r.times.size(); ++i) {
            const auto& now = r.program->instructions[i];
            for (const auto& part : std::span{r.program->parts}.subspan(now.first_part, now.parts))
                if (part.side == side) visit(part, r.program->self, r.times[i]);
        }
}

/// The planned duration of a message, divided by the problem's message time between the two ranks. 0 if the message
/// isn't along an edge.
inline double planned_factor(const problem& p, const exchange_part& part) {
    const auto e = edge_of(p, label_of(part));
    return e ? e->size * p.microbatches.factors(e->from, part.message.microbatch).message : 0.0;
}

} // namespace detail

OPTPIPE_INLINE schedule measured_schedule(const any_graph& graph, std::span<const rank_times> ranks,
                                          clock_time time_unit) {
    auto begin = std::chrono::nanoseconds::max();
    detail::for_each_operation(
        ranks, [&](const operation&, const execution::task_times& when) { begin = std::min(begin, when.start); });
    const auto in_units = [&](std::chrono::nanoseconds t) { return duration{clock_time{t - begin} / time_unit}; };
    schedule result{graph, {}};
    detail::for_each_operation(ranks, [&](const operation& op, const execution::task_times& when) {
        result.operations.push_back({op, in_units(when.start), in_units(when.end)});
    });
    return result;
}

OPTPIPE_INLINE std::size_t high_water(const rank_times& r, memory_arena arena) {
    std::vector<std::pair<std::chrono::nanoseconds, std::int64_t>> changes;
    for (const auto& b : r.program->buffers) {
        if (b.arena != arena || b.bytes == 0 || b.last_use >= r.times.size()) continue;
        const auto bytes = static_cast<std::int64_t>(b.bytes);
        changes.emplace_back(r.times[b.first_use].start, bytes);
        changes.emplace_back(r.times[b.last_use].end, -bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t level = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < changes.size();) {
        const auto now = changes[i].first;
        while (i < changes.size() && changes[i].first == now)
            level += changes[i++].second;
        most = std::max(most, level);
    }
    return static_cast<std::size_t>(most);
}

OPTPIPE_INLINE std::vector<cost_sample<rank_pair>> message_times(const problem& p, std::span<const rank_times> ranks,
                                                                 clock_time time_unit) {
    using side_kind = exchange_part::side_kind;
    /// Identifies a message by content, sender and receiver.
    using message_key = std::tuple<operation, value_kind, stage, rank, rank>;
    std::map<message_key, execution::task_times> sent;
    detail::for_each_end(ranks, side_kind::send, [&](const auto& part, rank from, const execution::task_times& when) {
        sent[{part.message, part.value, part.consumer, from, part.peer}] = when;
    });
    std::vector<cost_sample<rank_pair>> found;
    detail::for_each_end(ranks, side_kind::receive, [&](const auto& part, rank to, const execution::task_times& when) {
        const auto other = sent.find({part.message, part.value, part.consumer, part.peer, to});
        const double factor = detail::planned_factor(p, part);
        if (other == sent.end() || factor <= 0.0) return;
        const clock_time took = std::min(when.end, other->second.end) - std::max(when.start, other->second.start);
        found.push_back({{part.peer, to}, std::max(duration{took / time_unit}, duration{}) / factor});
    });
    return found;
}

OPTPIPE_INLINE per_stage<duration> reduction_times(std::span<const rank_times> ranks, clock_time time_unit) {
    per_stage<duration> took(ranks.empty() ? 0 : ranks.front().program->stages);
    for (const auto& r : ranks)
        for (std::size_t i = 0; i < r.times.size(); ++i)
            if (const auto& now = r.program->instructions[i]; now.kind == instruction_kind::reduce)
                took[now.op.stage] = duration{clock_time{r.times[i].end - r.times[i].start} / time_unit};
    return took;
}

OPTPIPE_INLINE time_difference compare_messages(const problem& p, std::span<const rank_times> ranks,
                                                clock_time time_unit) {
    time_difference sum;
    for (const auto& [pair, took] : message_times(p, ranks, time_unit))
        sum.add(p.p2p(pair.from, pair.to), took);
    return sum;
}

OPTPIPE_INLINE void add_step(cost_profile& profile, const problem& p, std::uint64_t step,
                             std::span<const rank_times> ranks, clock_time time_unit, double bytes_per_unit) {
    profile.add(p, step, measured_schedule(p.graph, ranks, time_unit), message_times(p, ranks, time_unit));
    const auto in_units = [&](const rank_times& r, memory_arena arena) {
        return memory_size{static_cast<double>(high_water(r, arena)) / bytes_per_unit};
    };
    for (const auto& r : ranks)
        if (!r.times.empty())
            profile.add_peaks(r.program->self, {in_units(r, memory_arena::device), in_units(r, memory_arena::host)});
}

} // namespace optpipe
#endif
