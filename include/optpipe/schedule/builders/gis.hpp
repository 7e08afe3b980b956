#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/construct/building_block.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

namespace optpipe {
namespace detail {

/// The number of microbatches that keep the ranks busy while one microbatch passes all ranks. Half of R, or up to R if
/// forwards or input gradients take more than half of the work. Hops count as work.
template <pipeline_graph Graph> [[nodiscard]] constexpr std::size_t half_group(const basic_problem<Graph>& p) {
    const auto ranks = p.graph.ranks();
    duration forward_passes{};
    duration gradient_passes{};
    for (const stage s : p.graph.all_stages()) {
        forward_passes += p.costs[s].forward;
        gradient_passes += p.costs[s].backward_input;
        if (p.is_last(s)) continue;
        forward_passes += p.hop(s, s.next());
        gradient_passes += p.hop(s.next(), s);
    }
    const auto busiest = p.busiest_work();
    const auto longest = std::max(forward_passes, gradient_passes);
    auto group = (ranks + 1) / 2;
    while (group < ranks && static_cast<double>(group) * busiest < longest - tolerance{}.at(longest))
        ++group;
    return group;
}

/// The block of PipeOffload (Wan et al., 2025, section 4) for groups of `group` microbatches; F, I and W have three
/// cells. A microbatch reaches a rank's next chunk k groups later, for the least k with k · group ≥ `pace`. If k and
/// the number of chunks share a factor, one of two colliding operations moves to the next group. Contract: loop
/// placement, 1 ≤ group ≤ R.
template <pipeline_graph Graph>
[[nodiscard]] constexpr building_block<Graph> interleaved_block(const Graph& g, std::size_t group, std::size_t pace) {
    constexpr std::size_t cells_each = 3;
    const auto ranks = g.ranks();
    const auto chunks = g.stages() / ranks;
    const auto round = cells_each * group;
    const auto rounds_apart = (pace + group - 1) / group;
    const auto unshared = chunks / std::gcd(chunks, rounds_apart);
    const auto after = [&](std::size_t chunk) { return round * (rounds_apart * chunk + chunk / unshared); };

    building_block<Graph> block{per_stage<block_cells, Graph::stage_extent>(g.stages()), round * chunks, group,
                                cells_each};
    for (const stage s : g.all_stages()) {
        const auto r = s.position() % ranks;
        const auto chunk = s.position() / ranks;
        auto& at = block.cells[s];
        at.forward = after(chunk) + r;
        at.backward_input = after(chunks - 1) + r + cells_each * (ranks - 1 - r) + 1 + after(chunks - 1 - chunk);
        at.backward_weight = at.backward_input + 1;
    }
    return block;
}

/// The number of microbatches until a repeated block takes its peak memory.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::size_t microbatches_to_the_peak(const Graph& g, const building_block<Graph>& block) {
    const auto first = block.cells[stage{0}].forward;
    std::size_t longest = 0;
    for (const auto& at : block.cells)
        longest = std::max(longest, at.backward_weight - first);
    const auto groups = longest / block.period + 3;
    return std::min(g.microbatches(), groups * block.group);
}

/// The largest amount by which `needed` exceeds a rank's memory limit. If all limits hold, the result isn't positive.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_size largest_lack(const basic_problem<Graph>& p,
                                                 const per_rank<memory_size, Graph::rank_extent>& needed) {
    auto most = -memory_size::unlimited();
    for (const rank r : p.graph.all_ranks())
        most = std::max(most, needed[r] - p.memory_limit[r]);
    return most;
}

template <pipeline_graph Graph>
[[nodiscard]] constexpr compute_lanes interleaved_lanes(const basic_problem<Graph>& p,
                                                        const building_block<Graph>& block, std::size_t count) {
    auto lanes = lanes_of(repeat(p.graph, block, count));
    if (!p.split_backward) fuse_backwards(lanes);
    return lanes;
}

/// The largest group whose repetition fits in memory. If no group fits, the group that exceeds the memory least.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::size_t largest_group_that_fits(const basic_problem<Graph>& p, std::size_t pace,
                                                            stop_check stop) {
    auto best = p.graph.ranks();
    if (p.graph.stages() == best) return best; // with one stage per rank, all groups give the same order
    const auto slack = tolerance{}.at(p.memory_scale());
    auto least = memory_size::unlimited();
    for (auto group = p.graph.ranks(); group > 0 && !stop(); --group) {
        const auto block = interleaved_block(p.graph, group, pace);
        const auto count = microbatches_to_the_peak(p.graph, block);
        basic_order<Graph> repeated{p.graph, {}};
        for (const auto& lane : interleaved_lanes(p, block, count))
            for (const auto& op : lane)
                repeated.operations.push_back(op);
        const auto lack = largest_lack(p, memory_needed(p, repeated));
        if (lack <= slack) return group;
        if (lack >= least) continue;
        least = lack;
        best = group;
    }
    return best;
}

/// A refusal that says why the schedule doesn't apply to this problem. If the schedule applies, the refusal has no
/// text.
template <pipeline_graph Graph>
[[nodiscard]] constexpr refusal not_for_interleaving(const basic_problem<Graph>& p, std::size_t group) {
    refusal why;
    if (!is_loop_placed(p.graph))
        why.sentence = "generalized interleaved is for loop placement: stage s on rank s mod R, as many on each rank";
    else if (group > p.graph.ranks())
        why.sentence = {"generalized interleaved takes groups of at most as many microbatches as there are ranks, ",
                        p.graph.ranks(), ", not ", group};
    return why;
}

} // namespace detail

/// The generalized interleaved schedule (Wan et al., PipeOffload, 2025, section 4.2). The schedule resembles
/// interleaved 1F1B. With v stages per rank, rank r does only R(v − 1) + R − r forwards before its first gradient. Each
/// input gradient is followed by its weight gradient. Microbatches go in groups of g. With g = R, a rank holds Rv
/// stashes of a stage. With ⌈R/2⌉ ≤ g < R, a rank holds g(v − 1) + R stashes, and is idle for (R − g)(v − 1) unit
/// passes. With g < ⌈R/2⌉, the chunks of a rank are several groups apart.
///
/// Needs loop placement; supports any number of stages per rank. With one stage per rank (linear placement), the
/// schedule is 1F1B with split backwards for any group. Supports any number of ranks and microbatches, and any costs
/// and hops. If backwards can't be split, each B replaces I and W. With full backwards, the memory stays the same, but
/// groups below R take much more time.
struct gis_builder {
    static constexpr std::string_view name = "gis";

    /// Number of microbatches in a group, at most R. With 0, the builder uses the largest group that fits in memory.
    std::size_t group = 0;
    [[nodiscard]] static constexpr std::array<builder_parameter<gis_builder>, 1> parameters() {
        return {{{"g", &gis_builder::group}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::not_for_interleaving(p, group); !why.sentence.empty()) return why;
        const auto pace = detail::half_group(p);
        const auto size = group > 0 ? group : detail::largest_group_that_fits(p, pace, stop);
        if (stop()) return was_stopped();
        const auto block = detail::interleaved_block(p.graph, size, pace);
        return interleave(p.graph, detail::interleaved_lanes(p, block, p.graph.microbatches()));
    }
};
inline constexpr gis_builder gis{};

} // namespace optpipe
