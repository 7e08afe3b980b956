#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/building_block.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// Whether each rank holds two stages, 0 … R−1 and back: `placement::v`, or a map that equals it.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_v_placed(const Graph& g) {
    const auto ranks = g.ranks();
    if (g.stages() != 2 * ranks) return false;
    for (const rank r : g.all_ranks())
        if (g.rank_of(stage{r.value()}) != r || g.rank_of(stage{2 * ranks - 1 - r.position()}) != r) return false;
    return true;
}

namespace detail {

/// For the methods of v placement; empty where they apply.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::string_view why_no_v_schedule(const basic_problem<Graph>& p) {
    if (!is_v_placed(p.graph))
        return "this schedule is for v placement: stages 0 … R−1 on the ranks in order, and back";
    if (!p.split_backward) return "this schedule is for backwards that may be split into I and W";
    return {};
}

} // namespace detail

/// A building block for v placement: the cells of the first rank's passes, and the distance to the next rank's
/// (Controllable Memory, Qi et al., 2024, section 3 and appendix A). Its forward goes down the ranks and back, then its
/// backward does.
struct v_pattern {
    /// Cells of the first rank for its second forward and its two input gradients, last stage first; modulo 6. The
    /// first forward is on cell 0.
    std::size_t second_forward = 1;
    std::size_t first_gradient = 2;
    std::size_t second_gradient = 4;
    /// Cells from one rank to the next on the way down, for the first `bend` ranks and after them. On the way back
    /// it is 1.
    std::size_t slope = 1;
    std::size_t slope_after_bend = 1;
    std::size_t bend = 1;
};

/// A rank's work on a microbatch in v placement: F, I and W of two stages.
inline constexpr std::size_t v_period = 6;

/// The block of a pattern, without its weight gradients.
template <pipeline_graph Graph>
[[nodiscard]] constexpr building_block<Graph> make_v_block(const Graph& g, const v_pattern& pattern) {
    OPTPIPE_EXPECT(is_v_placed(g), "make_v_block: needs v placement");
    const auto ranks = g.ranks();
    building_block<Graph> block;
    block.cells = per_stage<block_cells, Graph::stage_extent>(g.stages());
    block.period = v_period;
    const auto depth = [&](std::size_t r) {
        const auto steep = std::min(r, pattern.bend);
        return steep * pattern.slope + (r - steep) * pattern.slope_after_bend;
    };
    // The first cell after `cell` that repeats the pattern's one.
    const auto next_like = [](std::size_t cell, std::size_t residue) {
        return cell + 1 + (residue + v_period - (cell + 1) % v_period) % v_period;
    };
    const auto down_and_back = [&](std::size_t start, std::size_t back, auto set) {
        for (std::size_t r = 0; r < ranks; ++r)
            set(r, start + depth(r));
        // What is on `back` on the first rank is R − 1 cells earlier on the last.
        const auto gradient_start =
            next_like(start + depth(ranks - 1), (back + (v_period - 1) * (ranks - 1)) % v_period);
        for (std::size_t r = ranks; r-- > 0;)
            set(2 * ranks - 1 - r, gradient_start + (ranks - 1 - r));
        return gradient_start + ranks - 1;
    };
    const auto turned = down_and_back(0, pattern.second_forward,
                                      [&](std::size_t s, std::size_t cell) { block.cells[stage{s}].forward = cell; });
    down_and_back(
        next_like(turned, pattern.first_gradient), pattern.second_gradient,
        [&](std::size_t s, std::size_t cell) { block.cells[stage{2 * ranks - 1 - s}].backward_input = cell; });
    return block;
}

} // namespace optpipe
