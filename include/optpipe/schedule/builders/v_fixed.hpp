#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/builders/v_lanes.hpp"
#include "optpipe/schedule/construct/building_block.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace optpipe::detail {

/// The problem `p` with equally long passes, and communication without cost.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_problem<Graph> with_even_costs(const basic_problem<Graph>& p) {
    auto even = p;
    even.p2p = {};
    for (auto& c : even.costs)
        c.forward = c.backward_input = c.backward_weight = duration{1.0};
    return even;
}

/// The most stashes on one rank if a block is repeated and each stash is held until its W.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::size_t stashes_of_repetition(const basic_problem<Graph>& p,
                                                          const building_block<Graph>& block) {
    auto counted = p;
    for (auto& c : counted.costs)
        c.activation = c.weight_stash = memory_size{1.0};
    double most = 0.0;
    for (const auto level : memory_of_repetition(counted, block))
        most = std::max(most, level.value());
    return static_cast<std::size_t>(most + 0.5);
}

/// The best order that repeats a given block for v placement. The block has free cells in place of weight gradients.
/// Several ways to rebuild warm-up and cool-down and to fill in the weight gradients are tried. The memory of each rank
/// is at most the peak of the repeated block over all ranks.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>> build_v_schedule(const basic_problem<Graph>& p,
                                                                     building_block<Graph> block, stop_check stop) {
    OPTPIPE_EXPECT(place_weight_gradients(p.graph, block), "build_v_schedule: a weight gradient has no cell");
    const auto needed = memory_of_repetition(p, block);
    const auto most = *std::max_element(needed.begin(), needed.end());
    auto roomy = p;
    for (const rank r : p.graph.all_ranks())
        roomy.memory_limit[r] = std::max(needed[r], std::min(most, p.memory_limit[r]));
    const auto even = with_even_costs(roomy);
    const auto stashes = stashes_of_repetition(p, block);
    best_order<Graph> best{roomy};
    for (const bool warm_up : {true, false})
        for (const bool cool_down : {true, false})
            for (const bool keep_weights : {true, false}) {
                const auto lanes = v_lanes(p.graph, block, {stashes, warm_up, cool_down, keep_weights});
                for (const bool by_time : {true, false}) {
                    if (stop()) return was_stopped();
                    if (auto order = fill_with_weights(by_time ? p : even, lanes, roomy.memory_limit))
                        best.offer(*std::move(order));
                }
            }
    if (const auto repeated = interleave(p.graph, lanes_of(repeat(p.graph, block)))) {
        best.offer(fill_gaps(even, *repeated, roomy.memory_limit, stop));
        if (!best.found()) best.offer(*repeated);
    }
    if (stop() || !best.found()) return was_stopped();
    best.offer(fill_gaps(roomy, *best, roomy.memory_limit, stop));
    return std::move(best).take();
}

} // namespace optpipe::detail
