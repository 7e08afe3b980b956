#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/schedule/program.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe {

/// One rank's program and when its instructions ran (`runner::times`).
struct rank_times {
    const rank_program* program = nullptr;
    std::vector<execution::task_times> times;
};

/// What really happened, as a schedule: in the units of the problem, from the first start on. Comparable with the plan
/// by everything that takes a schedule.
[[nodiscard]] inline schedule measured_schedule(const any_graph& graph, std::span<const rank_times> ranks,
                                                std::chrono::nanoseconds time_unit) {
    auto begin = std::chrono::nanoseconds::max();
    for (const auto& r : ranks)
        for (const auto& t : r.times)
            begin = std::min(begin, t.start);
    const auto in_units = [&](std::chrono::nanoseconds t) {
        return duration{static_cast<double>((t - begin).count()) / static_cast<double>(time_unit.count())};
    };
    schedule result;
    result.graph = graph;
    for (const auto& r : ranks)
        for (std::size_t i = 0; i < r.times.size(); ++i) {
            const auto& now = r.program->instructions[i];
            if (now.kind == instruction_kind::compute || now.kind == instruction_kind::copy)
                result.operations.push_back({now.op, in_units(r.times[i].start), in_units(r.times[i].end)});
        }
    return result;
}

/// The most bytes of an arena that were held at once: from the start of each buffer's first instruction to the end of
/// its last. What ends at an instant is gone before what starts then.
[[nodiscard]] inline std::size_t high_water(const rank_times& r, memory_arena arena) {
    std::vector<std::pair<std::chrono::nanoseconds, std::int64_t>> changes;
    for (const auto& b : r.program->buffers) {
        if (b.arena != arena || b.bytes == 0) continue;
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

/// How long operations of one kind took, planned and measured.
struct kind_difference {
    operation_kind kind{};
    std::size_t count = 0;
    duration planned{};
    duration measured{};
    /// The most that one of them took longer than planned.
    duration worst{};
};

/// Sums per kind over the operations that both schedules have; kinds that neither has are left out.
[[nodiscard]] inline std::vector<kind_difference> compare_kinds(const schedule& planned, const schedule& measured) {
    const operation_numbering<any_graph> number{planned.graph};
    std::vector<const timed_operation*> plan(number.size(), nullptr);
    for (const auto& timed : planned.operations)
        plan[number(timed.op)] = &timed;
    std::array<kind_difference, all_operation_kinds.size()> sums{};
    for (const auto& timed : measured.operations) {
        if (!number.contains(timed.op) || !plan[number(timed.op)]) continue;
        const auto& expected = *plan[number(timed.op)];
        auto& sum = sums[static_cast<std::size_t>(timed.op.kind)];
        const auto took = timed.end - timed.start;
        sum.kind = timed.op.kind;
        ++sum.count;
        sum.planned += expected.end - expected.start;
        sum.measured += took;
        sum.worst = std::max(sum.worst, took - (expected.end - expected.start));
    }
    std::vector<kind_difference> result;
    for (const auto& sum : sums)
        if (sum.count > 0) result.push_back(sum);
    return result;
}

} // namespace optpipe
