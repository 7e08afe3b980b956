#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The number of a stage's stashes that fit in memory, and the time a forward waits for memory after a gradient ends.
struct stash_room {
    std::size_t count = 0;
    duration delay{};
};

/// If `count` stashes leave no room for a weight stash, `delay` is the shorter of an I and a W.
template <pipeline_graph Graph> constexpr stash_room room_of(const basic_problem<Graph>& p, stage s) {
    const auto& c = p.costs[s];
    const auto slack = tolerance{}.at(p.memory_scale());
    const auto limit = p.memory_limit[p.rank_of(s)] + slack;
    const auto fit = limit / c.activation;
    if (!(fit < static_cast<double>(p.graph.microbatches()))) return {p.graph.microbatches(), {}};
    const auto count = static_cast<std::size_t>(fit);
    const auto used = static_cast<double>(count) * c.activation;
    const bool full = p.split_backward && used + std::min(c.activation, c.weight_stash) > limit;
    return {count, full ? std::min(c.backward_weight, c.backward_input) : duration{}};
}

/// With room for k stashes, the (i + k)-th forward starts after the i-th gradient. One of the first i gradients belongs
/// to the i-th forward or a later one. Thus the i-th gradient ends at least a lifespan after the i-th forward starts.
/// Thus every round of k microbatches takes at least a lifespan. The bound only applies to stages without offloading.
/// Each stage counts as if it had its rank's memory to itself.
///
/// O(microbatches). The bound is 0 if all stashes fit in memory.
template <pipeline_graph Graph>
constexpr duration stash_rounds_bound(const basic_problem<Graph>& p, stage s, duration lifespan,
                                      const time_windows<Graph>& windows) {
    const auto& c = p.costs[s];
    const rank r = p.rank_of(s);
    if (stash_transfer(p, s) || p.memory_limit[r].is_unlimited() || c.activation <= tolerance{}.at(p.memory_scale()))
        return {};
    const auto count = p.graph.microbatches();
    const auto room = room_of(p, s);
    if (room.count == 0 || room.count >= count) return {};
    const auto gradient = p.gradient_time(s);
    const auto& window = windows.gradient(s);
    std::vector<duration> ends(count);
    duration start{};
    duration most{};
    for (std::size_t m = 0; m < count; ++m) {
        start = std::max(windows.forward(s).head[m], m > 0 ? start + c.forward : duration{});
        if (m >= room.count) start = std::max(start, ends[m - room.count] + room.delay);
        ends[m] = std::max(window.head[m] + gradient, start + lifespan);
        if (m > 0) ends[m] = std::max(ends[m], ends[m - 1] + gradient);
        most = std::max(most, ends[m] + window.tail[m]);
    }
    return most;
}

} // namespace optpipe::detail
