#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/gis.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/construct/offload_placement.hpp"
#include "optpipe/schedule/construct/offload_search.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Flags the stashes to offload. Each rank offloads up to `chunks` stages: the ones with the longest-lived stashes.
/// With `half`, a rank with one stage offloads only every second microbatch.
template <pipeline_graph Graph>
[[nodiscard]] constexpr cell_flags longest_lived(const basic_problem<Graph>& p, const basic_schedule<Graph>& timed,
                                                 std::size_t chunks, bool half) {
    const auto count = p.graph.microbatches();
    per_stage<duration, Graph::stage_extent> lifespan(p.graph.stages());
    for (const auto& [op, start, end] : timed.operations) {
        if (op.kind == operation_kind::forward) lifespan[op.stage] -= end;
        if (is_gradient(op.kind)) lifespan[op.stage] += start;
    }
    cell_flags flags(p.graph.stages() * count, 0);
    for (const auto& own : stages_by_rank(p.graph)) {
        std::vector<stage> able;
        for (const stage s : own)
            if (stash_transfer(p, s)) able.push_back(s);
        std::sort(able.begin(), able.end(),
                  [&](stage a, stage b) { return lifespan[a] != lifespan[b] ? lifespan[a] > lifespan[b] : a < b; });
        const std::size_t step = half && own.size() == 1 ? 2 : 1;
        for (std::size_t i = 0; i < std::min(chunks, able.size()); ++i)
            for (std::size_t m = 0; m < count; m += step)
                flags[able[i].position() * count + m] = 1;
    }
    return flags;
}

template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> interleaved_order(const basic_problem<Graph>& p, std::size_t group) {
    const auto block = interleaved_block(p.graph, group, half_group(p));
    return *interleave(p.graph, interleaved_lanes(p, block, p.graph.microbatches()));
}

template <pipeline_graph Graph>
[[nodiscard]] constexpr refusal not_for_offloading(const basic_problem<Graph>& p, std::size_t group) {
    auto why = not_for_interleaving(p, group);
    for (const stage s : p.graph.all_stages())
        if (stash_transfer(p, s)) return why;
    if (why.sentence.empty()) why.sentence = "PipeOffload is for storage that can be offloaded";
    return why;
}

/// The stashes to offload. Each rank offloads the stashes of `chunks` stages. With `half`, a rank with one stage
/// offloads only every second microbatch.
struct offload_share {
    std::size_t chunks = 1;
    bool half = false;
};

/// Group sizes to try, sorted by idle time. The size with the least idle time is first.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::vector<std::size_t> groups_to_try(const basic_problem<Graph>& p, std::size_t group) {
    if (group > 0) return {group};
    const bool limited = std::any_of(p.memory_limit.begin(), p.memory_limit.end(),
                                     [](memory_size limit) { return !limit.is_unlimited(); });
    if (!limited || p.graph.stages() == p.graph.ranks()) return {1};
    return {p.graph.ranks(), half_group(p), 1};
}

/// The best of several interleaved orders, with offloading of the longest-lived stages. Each group size gives one
/// order. If the time limit expires, returns the best order found by then.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>>
offloaded_order(const basic_problem<Graph>& p, const offload_share& share, std::size_t group, stop_check stop) {
    if (const auto why = not_for_offloading(p, group); !why.sentence.empty()) return why;
    const auto free = without_limits(p);
    std::optional<basic_order<Graph>> best;
    auto value = duration::unlimited();
    auto lack = memory_size::unlimited();
    for (const auto size : groups_to_try(p, group)) {
        if (stop()) break;
        const auto base = interleaved_order(p, size);
        const auto timed = simulate(free, base);
        if (!timed) return timed.why();
        const auto flags = longest_lived(p, *timed, share.chunks, share.half);
        offload_search<Graph> search{p, flags};
        search.run(base, stop, stop);
        if (!search.found()) break;
        if (best && (search.value() > value || (search.value() == value && search.lack() >= lack))) continue;
        value = search.value();
        lack = search.lack();
        best = std::move(search).take();
    }
    if (!best || stop.is_requested()) return was_stopped();
    return *std::move(best);
}

} // namespace detail

/// PipeOffload (Wan et al., 2025, sections 4 and 5), a generalized interleaved order with offloading. Each rank
/// offloads the stashes of the `chunks` stages with the longest lifespans. The published order has one microbatch per
/// group. In the published order, offloading a share of the stashes lowers the peak by more than this share.
///
/// The warm-up is postponed. Transfers are placed around the timed computations, in alternating slots of the copy
/// engines and links. Transfers have no slots if their times differ, or if slots save less memory. Stashes that
/// couldn't be reloaded in time stay on the device. Under tight limits of device or host, offloads come earlier,
/// reloads come later, more stashes are offloaded, and computations wait. Without limits, transfers never delay
/// anything.
///
/// Needs loop placement. With one stage per rank (linear placement), the schedule is 1F1B with split backwards and
/// offloading. Supports any costs, and any numbers of ranks, ranks per link, and microbatches. Stages that can't be
/// offloaded are allowed.
struct pipe_offload_builder {
    static constexpr std::string_view name = "po";

    /// Number of stages on each rank that offload their stashes. A rank with fewer offloadable stages offloads all of
    /// them.
    std::size_t chunks = 1;
    /// Number of microbatches in a group, at most R. If the number is 0, the builder chooses 1 without memory limits,
    /// and otherwise the best of R, `half_group` and 1.
    std::size_t group = 0;
    [[nodiscard]] static constexpr std::array<builder_parameter<pipe_offload_builder>, 2> parameters() {
        return {{{"chunks", &pipe_offload_builder::chunks}, {"g", &pipe_offload_builder::group}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        return detail::offloaded_order(p, {chunks, false}, group, stop);
    }
};
inline constexpr pipe_offload_builder pipe_offload{};

} // namespace optpipe
