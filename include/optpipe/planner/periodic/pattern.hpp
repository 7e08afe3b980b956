#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe {

/// When one stage does its work on one microbatch: starts.
struct periodic_beat {
    duration forward{};
    /// I, or B where `whole`.
    duration gradient{};
    duration weight{};
    duration offload{};
    duration reload{};
    bool whole = false;
    bool travels = false;
};

/// A schedule without beginning and end: what happens to the first `cycle` microbatches happens to the next ones
/// `cycle` periods later, again and again.
struct periodic_pattern {
    /// The mean time from one microbatch to the next.
    duration period{};
    std::size_t cycle = 1;
    /// Per stage, one for each microbatch of the cycle.
    per_stage<std::vector<periodic_beat>> stages{};

    [[nodiscard]] duration length() const { return static_cast<double>(cycle) * period; }
};

namespace detail {

/// Memory that is held from `start` to `end` in every cycle.
struct holding {
    double start = 0.0;
    double end = 0.0;
    double amount = 0.0;
};

/// The most that is held at once when all of it is repeated every `length`. What ends within `slack` of a start has
/// ended.
[[nodiscard]] inline double peak_of_holdings(const std::vector<holding>& all, double length, double slack) {
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

/// What one microbatch of a stage holds on the device (or on the host).
inline void append_holdings(std::vector<holding>& all, const stage_costs& c, const periodic_beat& at,
                            memory_kind which) {
    const auto stash = c.activation.value();
    if (which == memory_kind::host) {
        if (at.travels) all.push_back({at.offload.value(), (at.reload + c.transfer->reload).value(), stash});
        return;
    }
    const bool grows = !at.whole && c.weight_stash > c.activation;
    const auto gradient_end = at.gradient + (at.whole ? c.backward() : c.backward_input);
    const auto until = grows ? at.gradient : gradient_end;
    if (at.travels) {
        all.push_back({at.forward.value(), (at.offload + c.transfer->offload).value(), stash});
        all.push_back({at.reload.value(), until.value(), stash});
    } else {
        all.push_back({at.forward.value(), until.value(), stash});
    }
    if (!at.whole) all.push_back({until.value(), (at.weight + c.backward_weight).value(), c.weight_stash.value()});
}

} // namespace detail

/// The most that each rank holds when the pattern is repeated without end; in a step of any number of microbatches no
/// rank needs more.
[[nodiscard]] inline per_rank<memory_size> memory_of_repetition(const problem& p, const periodic_pattern& pattern,
                                                                memory_kind which = memory_kind::device) {
    per_rank<std::vector<detail::holding>> holdings(p.graph.ranks());
    for (const stage s : p.graph.all_stages())
        for (const auto& beat : pattern.stages[s])
            detail::append_holdings(holdings[p.rank_of(s)], p.costs[s], beat, which);
    per_rank<memory_size> peaks(p.graph.ranks());
    const auto slack = tolerance{}.at(pattern.period).value();
    for (const rank r : p.graph.all_ranks())
        peaks[r] = memory_size{detail::peak_of_holdings(holdings[r], pattern.length().value(), slack)};
    return peaks;
}

/// The repetitions that a step of the problem has, with their times: the first forward at 0.
[[nodiscard]] inline schedule repeat(const problem& p, const periodic_pattern& pattern) {
    schedule result{p.graph, {}};
    result.operations.reserve(5 * p.graph.stages() * p.graph.microbatches());
    auto first = duration::unlimited();
    for (const auto& beats : pattern.stages)
        for (const auto& at : beats)
            first = std::min(first, at.forward);
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches()) {
            const auto& at = pattern.stages[s][m.position() % pattern.cycle];
            const auto shift = static_cast<double>(m.position() / pattern.cycle) * pattern.length() - first;
            const auto put = [&](const operation& op, duration start) {
                result.operations.push_back({op, shift + start, shift + start + duration_of(p, op)});
            };
            put(forward(s, m), at.forward);
            put(at.whole ? backward(s, m) : backward_input(s, m), at.gradient);
            if (!at.whole) put(backward_weight(s, m), at.weight);
            if (!at.travels) continue;
            put(offload_of(s, m), at.offload);
            put(reload_of(s, m), at.reload);
        }
    return result;
}

} // namespace optpipe
