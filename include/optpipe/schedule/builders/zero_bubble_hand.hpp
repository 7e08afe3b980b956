#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/interleave.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe::detail {

/// The hand-made schedules of Zero Bubble (Qi et al., 2024). Before its first gradient, every stage does `slope` more
/// forwards than the next stage. After the warm-up, every stage alternates one forward and one input gradient. A stage
/// with n fewer early forwards than the first stage postpones n weight gradients.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> zero_bubble_by_hand(const Graph& g, std::size_t slope) {
    compute_lanes lanes(g.ranks());
    const auto count = g.microbatches();
    const auto put_off = slope * (g.stages() - 1);
    for (const stage s : g.all_stages()) {
        auto& lane = lanes[g.rank_of(s)];
        const auto ahead = slope * (g.stages() - 1 - s.position());
        std::size_t begun = 0;
        std::size_t weights = 0;
        for (; begun < std::min(ahead, count); ++begun)
            lane.push_back(forward(s, microbatch{begun}));
        for (std::size_t m = 0; m < count; ++m) {
            if (begun < count) lane.push_back(forward(s, microbatch{begun++}));
            lane.push_back(backward_input(s, microbatch{m}));
            if (ahead + m >= put_off) lane.push_back(backward_weight(s, microbatch{weights++}));
        }
        for (; weights < count; ++weights)
            lane.push_back(backward_weight(s, microbatch{weights}));
    }
    return *interleave(g, lanes);
}

/// Why the methods of Zero Bubble don't apply; empty if they do.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::string_view why_no_zero_bubble(const basic_problem<Graph>& p) {
    if (!one_stage_per_rank(p.graph)) return "this Zero Bubble schedule is for one stage per rank";
    if (!p.split_backward) return "Zero Bubble is for backwards that may be split into I and W";
    return {};
}

} // namespace optpipe::detail
