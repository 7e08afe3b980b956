#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace optpipe {

/// The kind of relaxation that `without_storage` makes.
enum class storage_relaxation {
    /// A stash has the smallest size that any option leaves on the device. Nothing is offloaded.
    smallest_rest,
    /// A stash has the smallest `held` of all options, and the fastest transfer moves all of it.
    fastest_transfer,
};

namespace detail {

/// The least value of each quantity over the options of a stage.
struct least_storage {
    memory_size held = memory_size::unlimited();
    memory_size left_on_device = memory_size::unlimited();
    duration backward_extra = duration::unlimited();
    /// The least value of each transfer time over the options that offload.
    std::optional<transfer_times> transfer{};
    memory_size transfer_size = memory_size::unlimited();
};

template <pipeline_graph Graph> constexpr least_storage least_storage_of(const basic_problem<Graph>& p, stage s) {
    least_storage least;
    for (std::size_t i = 0; i < p.storage_options(s); ++i) {
        const auto o = p.storage_of(s, i);
        least.held = std::min(least.held, o.held);
        least.left_on_device = std::min(least.left_on_device, o.left_on_device());
        least.backward_extra = std::min(least.backward_extra, o.backward_extra);
        if (!o.transfer) continue;
        least.transfer_size = std::min(least.transfer_size, o.transfer_size);
        if (!least.transfer) least.transfer = o.transfer;
        least.transfer->offload = std::min(least.transfer->offload, o.transfer->offload);
        least.transfer->reload = std::min(least.transfer->reload, o.transfer->reload);
    }
    return least;
}

} // namespace detail

/// A problem in which stashes are kept or offloaded as a whole (`is_described_by_costs`). The optimum of the result is
/// at most the optimum of `p`. A stage is unchanged if its costs already describe its options. Proof: a valid schedule
/// of `p` stays valid if recomputation is removed, and gradients, offloads and reloads get the least duration of any
/// option. Shortened gradients and reloads keep their start, and shortened offloads keep their end. The new problem
/// counts no more memory than the schedule of `p` holds:
///
/// - `smallest_rest`: held − transfer_size on the device, from the start of F to the end of I.
/// - `fastest_transfer`: `held` on the device, except from the end of the offload to the start of the reload.
/// - Both: `weight_stash`, from the start of I to the end of W. A full backward holds no more than in `p`.
/// - If the new schedule may hold more on a rank's host, the host has no limit.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_problem<Graph> without_storage(const basic_problem<Graph>& p, storage_relaxation kind) {
    auto q = p;
    for (const stage s : p.graph.all_stages()) {
        if (is_described_by_costs(p.costs[s], p.storage[s])) continue;
        const auto least = detail::least_storage_of(p, s);
        auto c = q.costs[s];
        c.backward_input += least.backward_extra;
        c.activation = kind == storage_relaxation::smallest_rest ? least.left_on_device : least.held;
        c.transfer = kind == storage_relaxation::smallest_rest ? std::nullopt : least.transfer;
        if (c.transfer && least.transfer_size < c.activation)
            q.host_memory_limit[p.rank_of(s)] = memory_size::unlimited();
        q.set_stage(s, c);
    }
    // With a smaller tolerance, the limits are raised so that schedules of `p` still fit.
    if (q.memory_scale() < p.memory_scale())
        for (const rank r : p.graph.all_ranks()) {
            q.memory_limit[r] += tolerance{}.at(p.memory_scale());
            q.host_memory_limit[r] += tolerance{}.at(p.memory_scale());
        }
    return q;
}

} // namespace optpipe
