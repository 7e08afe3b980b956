#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/periodic/pattern.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/gap_filling.hpp"
#include "optpipe/schedule/interleave.hpp"
#include "optpipe/schedule/weight_filling.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// How a repeated pattern becomes a step that begins and ends.
struct periodic_ends {
    /// Forwards come as many cycles earlier as memory allows, but for each stage after it at most this share of one.
    double ahead = 0.0;
    /// Weight gradients where a rank waits or needs their memory, instead of where the pattern has them.
    bool refill = false;
    friend constexpr bool operator==(const periodic_ends&, const periodic_ends&) = default;
};

/// The pattern with the forwards of every stage some cycles earlier: they take the places of their predecessors, so
/// that all stays free of collisions. What that fills is the wait for the first gradient.
[[nodiscard]] inline periodic_pattern with_forwards_ahead(const problem& p, periodic_pattern pattern, double share) {
    const auto peaks = memory_of_repetition(p, pattern);
    per_rank<double> spare(p.graph.ranks());
    per_rank<double> stashes(p.graph.ranks());
    for (const rank r : p.graph.all_ranks())
        spare[r] = (p.memory_limit[r] + tolerance{}.at(p.memory_scale()) - peaks[r]).value();
    for (const stage s : p.graph.all_stages())
        stashes[p.rank_of(s)] += static_cast<double>(pattern.cycle) * p.costs[s].activation.value();
    auto least = static_cast<double>(p.graph.microbatches());
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        const auto after = static_cast<double>(p.graph.stages() - 1 - s.position());
        const auto room = stashes[r] > 0.0 ? std::max(0.0, spare[r] / stashes[r]) : least;
        const auto wanted = share * after / static_cast<double>(pattern.cycle);
        // No stage more than the one before it, whose outputs it needs.
        least = std::min({least, std::floor(room), std::floor(wanted)});
        for (auto& at : pattern.stages[s])
            at.forward -= least * pattern.length();
    }
    return pattern;
}

/// The forwards and gradients of each rank by start; `fill_with_weights` adds the rest.
[[nodiscard]] inline compute_lanes lanes_without_weights(const problem& p, const schedule& s) {
    compute_lanes lanes(p.graph.ranks());
    for (const auto& op : order_of(s).operations)
        if (op.kind != operation_kind::backward_weight) lanes[p.rank_of(op.stage)].push_back(op);
    return lanes;
}

/// The step that begins and ends with this pattern, or why it can't.
[[nodiscard]] inline outcome<schedule> complete_pattern(const problem& p, const periodic_pattern& pattern,
                                                        const periodic_ends& ends) {
    const auto repeated = repeat(p, ends.ahead > 0.0 ? with_forwards_ahead(p, pattern, ends.ahead) : pattern);
    if (!ends.refill) return time_order(p, order_of(repeated));
    const auto refilled = fill_with_weights(p, lanes_without_weights(p, repeated), p.memory_limit);
    if (!refilled) return refilled.why();
    return time_order(p, fill_gaps(p, *refilled, p.memory_limit));
}

/// Whether weight gradients may be put anywhere: nothing travels, and each has an I of its own.
[[nodiscard]] inline bool can_refill(const problem& p, const periodic_pattern& pattern) {
    return p.split_backward && std::none_of(pattern.stages.begin(), pattern.stages.end(), [](const auto& beats) {
               return std::any_of(beats.begin(), beats.end(),
                                  [](const periodic_beat& at) { return at.travels || at.whole; });
           });
}

} // namespace optpipe::detail
