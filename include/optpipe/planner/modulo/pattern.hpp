#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The start times of one stage's operations for one microbatch, relative to the pattern's time 0.
struct pattern_slot {
    duration forward{};
    /// Start of I, or of B if `full`.
    duration gradient{};
    duration weight{};
    /// Start times of transfers and recomputation, if the storage option has them.
    duration offload{};
    duration reload{};
    duration recompute{};
    bool full = false;
    /// The storage option of the stash, as an index into its stage's options.
    storage_index storage = 0;
};

/// A periodic schedule in steady state. The operations of the first `periodicity` (K) microbatches recur K periods
/// later for the next K microbatches.
struct periodic_pattern {
    /// The initiation interval: the mean time from one microbatch to the next.
    duration period{};
    std::size_t periodicity = 1;
    /// For each stage, one slot for each of the K microbatches.
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

/// The peak memory if all intervals repeat with the period `length`. An interval that ends within `slack` of a start
/// counts as ended.
[[nodiscard]] inline double peak_of_intervals(const std::vector<memory_interval>& all, double length, double slack) {
    double peak = 0.0;
    for (const auto& one : all) {
        double level = 0.0;
        for (const auto& other : all)
            // The number of begun repetitions of `other`, minus the number of ended repetitions.
            level += other.amount * (std::floor((one.start - other.start + slack) / length) -
                                     std::floor((one.start - other.end + slack) / length));
        peak = std::max(peak, level);
    }
    return peak;
}

/// Appends the memory of one microbatch of a stage, on the device or on the host (`which`). `stored` is the storage
/// option that the slot `at` names.
inline void append_memory_intervals(std::vector<memory_interval>& all, const stage_costs& c,
                                    const storage_option& stored, const pattern_slot& at, memory_kind which) {
    const auto add = [&](duration start, duration end, memory_size amount) {
        if (amount > memory_size{}) all.push_back({start.value(), end.value(), amount.value()});
    };
    if (which == memory_kind::host) {
        if (stored.offloads()) add(at.offload, at.reload + stored.transfer->reload, stored.transfer_size);
        return;
    }
    const auto restored = stored.restored(c);
    const bool grows = !at.full && c.weight_stash > restored;
    const auto gradient_end = at.gradient + (at.full ? c.backward() : c.backward_input) + stored.backward_extra;
    const auto until = grows ? at.gradient : gradient_end;
    if (stored.offloads()) {
        add(at.forward, at.offload + stored.transfer->offload, stored.transfer_size);
        add(at.reload, until, stored.transfer_size);
        add(at.forward, until, stored.left_on_device());
    } else {
        add(at.forward, until, stored.held);
    }
    if (stored.recomputes()) add(at.recompute, until, restored - stored.held);
    if (!at.full) add(until, at.weight + c.backward_weight, c.weight_stash);
}

} // namespace detail

/// The peak memory of each rank in steady state. The peak memory of a step, with any number of microbatches, is at most
/// the peak memory in steady state.
[[nodiscard]] inline per_rank<memory_size> memory_of_repetition(const problem& p, const periodic_pattern& pattern,
                                                                memory_kind which = memory_kind::device) {
    per_rank<std::vector<detail::memory_interval>> intervals(p.graph.ranks());
    for (const stage s : p.graph.all_stages())
        for (const auto& slot : pattern.stages[s])
            detail::append_memory_intervals(intervals[p.rank_of(s)], p.costs[s], p.storage_of(s, slot.storage), slot,
                                            which);
    per_rank<memory_size> peaks(p.graph.ranks());
    const auto slack = tolerance{}.at(pattern.period).value();
    for (const rank r : p.graph.all_ranks())
        peaks[r] = memory_size{detail::peak_of_intervals(intervals[r], pattern.length().value(), slack)};
    return peaks;
}

/// The pattern repeated for all microbatches of the problem, starting at 0.
[[nodiscard]] inline schedule repeat(const problem& p, const periodic_pattern& pattern) {
    schedule result{p.graph, {}};
    result.operations.reserve(6 * p.graph.cells());
    auto first = duration::unlimited();
    for (const auto& pattern_slots : pattern.stages)
        for (const auto& at : pattern_slots)
            first = std::min(first, at.forward);
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto& at = pattern.stages[s][m.position() % pattern.periodicity];
            const auto shift = static_cast<double>(m.position() / pattern.periodicity) * pattern.length() - first;
            const auto stored = p.storage_of(s, at.storage);
            const auto put = [&](operation op, duration start) {
                op.storage = at.storage;
                result.operations.push_back({op, shift + start, shift + start + duration_of(p, op)});
            };
            put(forward(s, m), at.forward);
            put(at.full ? backward(s, m) : backward_input(s, m), at.gradient);
            if (!at.full) put(backward_weight(s, m), at.weight);
            if (stored.recomputes()) put(recompute_of(s, m), at.recompute);
            if (!stored.offloads()) continue;
            put(offload_of(s, m), at.offload);
            put(reload_of(s, m), at.reload);
        }
    return result;
}

} // namespace optpipe
