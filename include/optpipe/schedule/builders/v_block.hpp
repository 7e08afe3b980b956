#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/building_block.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// Whether each rank holds two stages, in the order 0 … R−1, R−1 … 0. True for `placement::v`, and for a map that gives
/// the same placement.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_v_placed(const Graph& g) {
    const auto ranks = g.ranks();
    if (g.stages() != 2 * ranks) return false;
    for (const rank r : g.all_ranks())
        if (g.rank_of(stage{r.value()}) != r || g.rank_of(stage{2 * ranks - 1 - r.position()}) != r) return false;
    return true;
}

namespace detail {

/// Why the methods of v placement don't apply; empty if they do.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::string_view why_no_v_schedule(const basic_problem<Graph>& p) {
    if (!is_v_placed(p.graph))
        return "this schedule is for v placement: stages 0 … R−1 on the ranks in order, and back";
    if (!p.split_backward) return "this schedule is for backwards that may be split into I and W";
    return {};
}

} // namespace detail

/// The shortest period of a block, in cells. The six cells are for F, I and W of a rank's two stages on one microbatch.
inline constexpr std::size_t v_period = 6;

/// A building block for v placement (Controllable Memory, Qi et al., 2024, section 3 and appendix A). The block
/// describes the path of a microbatch's forward and gradient down the ranks and back, and the start of the next
/// microbatches. On the way back, consecutive ranks are one cell apart.
struct v_pattern {
    /// Number of cells from one rank to the next on the way down. The first `bend` ranks use `slope`, and the ranks
    /// after them use `slope_after_bend`.
    std::size_t slope = 1;
    std::size_t slope_after_bend = 1;
    std::size_t bend = 1;
    /// Number of cells that a microbatch waits where its forward turns, before its gradient, and where its gradient
    /// turns.
    std::size_t forward_wait = 0;
    std::size_t gradient_wait = 0;
    std::size_t turn_wait = 0;
    /// Period of the `building_block`. In the paper, the period is six cells. With a longer period, fewer microbatches
    /// are in flight.
    std::size_t period = v_period;
    std::size_t group = 1;
    std::size_t stride = 0;
};

/// The block of a pattern, without its weight gradients.
template <pipeline_graph Graph>
[[nodiscard]] constexpr building_block<Graph> make_v_block(const Graph& g, const v_pattern& pattern) {
    OPTPIPE_EXPECT(is_v_placed(g), "make_v_block: needs v placement");
    const auto ranks = g.ranks();
    building_block<Graph> block;
    block.cells = per_stage<block_cells, Graph::stage_extent>(g.stages());
    block.period = pattern.period;
    block.group = pattern.group;
    block.stride = pattern.stride;
    const auto depth = [&](std::size_t r) {
        const auto steep = std::min(r, pattern.bend);
        return steep * pattern.slope + (r - steep) * pattern.slope_after_bend;
    };
    // Returns the cell after the last cell that was set.
    const auto down_and_back = [&](std::size_t start, std::size_t wait, auto set) {
        for (std::size_t r = 0; r < ranks; ++r)
            set(r, start + depth(r));
        const auto turned = start + depth(ranks - 1) + 1 + wait;
        for (std::size_t r = ranks; r-- > 0;)
            set(2 * ranks - 1 - r, turned + (ranks - 1 - r));
        return turned + ranks;
    };
    const auto forwards_end = down_and_back(
        0, pattern.forward_wait, [&](std::size_t s, std::size_t cell) { block.cells[stage{s}].forward = cell; });
    down_and_back(forwards_end + pattern.gradient_wait, pattern.turn_wait, [&](std::size_t s, std::size_t cell) {
        block.cells[stage{2 * ranks - 1 - s}].backward_input = cell;
    });
    return block;
}

} // namespace optpipe
