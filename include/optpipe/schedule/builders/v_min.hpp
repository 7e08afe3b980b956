#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/builders/v_fixed.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// The building block of V-Min (Controllable Memory, Qi et al., 2024, table 8), with a third of the memory of 1F1B.
/// Contract: v placement.
template <pipeline_graph Graph> [[nodiscard]] constexpr building_block<Graph> v_min_block(const Graph& g) {
    const auto ranks = g.ranks();
    const std::size_t wait = ranks % 3 == 0 ? 2 : 0;
    building_block<Graph> block;
    block.period = v_period;
    block.cells = per_stage<block_cells, Graph::stage_extent>(g.stages());
    for (std::size_t r = 0; r < ranks; ++r) {
        block.cells[stage{r}] = {r, 4 * ranks + wait - 1 - r, 0};
        block.cells[stage{2 * ranks - 1 - r}] = {2 * ranks - 1 - r, 2 * ranks + wait + r, 0};
    }
    return block;
}

/// V-Min (Controllable Memory), a schedule for v placement. A rank holds ⌊(R + 4)/3⌋ stashes for each of its two
/// stages. If T_F = T_I = T_W, the bubble is about two thirds of 1F1B's bubble. If T_F, T_I and T_W differ, every
/// microbatch adds to the bubble. Supports any number of ranks and microbatches.
struct v_min_builder {
    static constexpr std::string_view name = "v-min";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::why_no_v_schedule(p); !why.empty()) return does_not_apply(why);
        return detail::build_v_schedule(p, v_min_block(p.graph), stop);
    }
};
inline constexpr v_min_builder v_min{};

} // namespace optpipe
