#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The starts of one stage's operations for one microbatch, relative to the pattern.
struct pattern_slot {
    duration forward{};
    /// I, or B where `full`.
    duration gradient{};
    duration weight{};
    duration offload{};
    duration reload{};
    bool full = false;
    bool offloaded = false;
};

/// A periodic schedule in steady state: the operations of the first `periodicity` (K) microbatches recur for the next
/// K, K periods later.
struct periodic_pattern {
    /// The initiation interval: the mean time from one microbatch to the next.
    duration period{};
    std::size_t periodicity = 1;
    /// Per stage, one slot for each of the K microbatches.
    per_stage<std::vector<pattern_slot>> stages{};

    [[nodiscard]] duration length() const { return static_cast<double>(periodicity) * period; }
};

namespace detail {

/// Memory that is held from `start` to `end` in every repetition.
struct memory_interval {
    double start = 0.0;
    double end = 0.0;
    double amount = 0.0;
};

/// The peak when all intervals are repeated every `length`. One that ends within `slack` of a start has ended.
[[nodiscard]] inline double peak_of_intervals(const std::vector<memory_interval>& all, double length, double slack) {
    double peak = 0.0;
    for (const auto& one : all) {
        double level = 0.0;
        for (const auto& other : all)
            // How many of its repetitions have begun, less how many have ended.
            level += other.amount * (std::floor((one.start - other.start + slack) / length) -
                                     std::floor((one.start - other.end + slack) / length));
        peak = std::max(peak, level);
    }
    return peak;
}

/// The memory of one microbatch of a stage on the device (or on the host).
inline void append_memory_intervals(std::vector<memory_interval>& all, const stage_costs& c, const pattern_slot& at,
                                    memory_kind which) {
    const auto stash = c.activation.value();
    if (which == memory_kind::host) {
        if (at.offloaded) all.push_back({at.offload.value(), (at.reload + c.transfer->reload).value(), stash});
        return;
    }
    const bool grows = !at.full && c.weight_stash > c.activation;
    const auto gradient_end = at.gradient + (at.full ? c.backward() : c.backward_input);
    const auto until = grows ? at.gradient : gradient_end;
    if (at.offloaded) {
        all.push_back({at.forward.value(), (at.offload + c.transfer->offload).value(), stash});
        all.push_back({at.reload.value(), until.value(), stash});
    } else {
        all.push_back({at.forward.value(), until.value(), stash});
    }
    if (!at.full) all.push_back({until.value(), (at.weight + c.backward_weight).value(), c.weight_stash.value()});
}

} // namespace detail

/// The peak of each rank in steady state. A step with any number of microbatches needs no more.
[[nodiscard]] inline per_rank<memory_size> memory_of_repetition(const problem& p, const periodic_pattern& pattern,
                                                                memory_kind which = memory_kind::device) {
    per_rank<std::vector<detail::memory_interval>> intervals(p.graph.ranks());
    for (const stage s : p.graph.all_stages())
        for (const auto& slot : pattern.stages[s])
            detail::append_memory_intervals(intervals[p.rank_of(s)], p.costs[s], slot, which);
    per_rank<memory_size> peaks(p.graph.ranks());
    const auto slack = tolerance{}.at(pattern.period).value();
    for (const rank r : p.graph.all_ranks())
        peaks[r] = memory_size{detail::peak_of_intervals(intervals[r], pattern.length().value(), slack)};
    return peaks;
}

/// The pattern repeated for all microbatches of the problem, starting at 0.
[[nodiscard]] inline schedule repeat(const problem& p, const periodic_pattern& pattern) {
    schedule result{p.graph, {}};
    result.operations.reserve(5 * p.graph.stages() * p.graph.microbatches());
    auto first = duration::unlimited();
    for (const auto& slots : pattern.stages)
        for (const auto& at : slots)
            first = std::min(first, at.forward);
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto& at = pattern.stages[s][m.position() % pattern.periodicity];
            const auto shift = static_cast<double>(m.position() / pattern.periodicity) * pattern.length() - first;
            const auto put = [&](const operation& op, duration start) {
                result.operations.push_back({op, shift + start, shift + start + duration_of(p, op)});
            };
            put(forward(s, m), at.forward);
            put(at.full ? backward(s, m) : backward_input(s, m), at.gradient);
            if (!at.full) put(backward_weight(s, m), at.weight);
            if (!at.offloaded) continue;
            put(offload_of(s, m), at.offload);
            put(reload_of(s, m), at.reload);
        }
    return result;
}

} // namespace optpipe
