#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/builders/v_fixed.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// The building block of V-Half (Controllable Memory, Qi et al., 2024, table 9), with half of the memory of 1F1B.
/// Contract: v placement.
template <pipeline_graph Graph> [[nodiscard]] constexpr building_block<Graph> v_half_block(const Graph& g) {
    const auto ranks = g.ranks();
    const std::size_t wait = ranks % 2 == 0 ? 3 : 0;
    building_block<Graph> block;
    block.period = v_period;
    block.cells = per_stage<block_cells, Graph::stage_extent>(g.stages());
    for (std::size_t r = 0; r < ranks; ++r) {
        block.cells[stage{r}] = {2 * r, 6 * ranks + wait - 2 - r, 0};
        block.cells[stage{2 * ranks - 1 - r}] = {3 * ranks - 2 - r, 3 * ranks - 1 + wait + 2 * r, 0};
    }
    return block;
}

/// V-Half (Controllable Memory), a schedule for v placement. A rank holds ⌊(R + 2)/2⌋ stashes for each of its two
/// stages. The bubble is shorter than in 1F1B by the work on about R/2 microbatches. Supports any number of ranks and
/// microbatches. Ranks are busy in the steady state if T_W + 2 T_I ≥ 2 T_F and T_W + 2 T_F ≥ 2 T_I.
struct v_half_builder {
    static constexpr std::string_view name = "v-half";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::why_no_v_schedule(p); !why.empty()) return does_not_apply(why);
        return detail::build_v_schedule(p, v_half_block(p.graph), stop);
    }
};
inline constexpr v_half_builder v_half{};

} // namespace optpipe
