#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/interleave.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

namespace detail {

/// 1F1B with longer warm-ups. Each stage first does one forward for each later stage, and `further` more forwards.
/// Contract: one stage per rank.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_forward_one_backward_order(const Graph& g, std::size_t further) {
    OPTPIPE_EXPECT(one_stage_per_rank(g), "1F1B: needs one stage per rank");
    compute_lanes lanes(g.ranks());
    const auto count = g.microbatches();
    for (const stage s : g.all_stages()) {
        auto& lane = lanes[g.rank_of(s)];
        const auto warm_up = std::min(g.stages() - 1 - s.position() + further, count);
        for (std::size_t m = 0; m < warm_up; ++m)
            lane.push_back(forward(s, microbatch{m}));
        for (std::size_t m = 0; m < count; ++m) {
            if (warm_up + m < count) lane.push_back(forward(s, microbatch{warm_up + m}));
            lane.push_back(backward(s, microbatch{m}));
        }
    }
    return *interleave(g, lanes);
}

} // namespace detail

/// 1F1B (PipeDream-flush, Narayanan et al., 2021). Each stage first runs one forward for each later stage. The stage
/// then alternates a forward and a full backward, and ends with the remaining backwards. Needs one stage per rank, in
/// any order of the ranks. The rank of stage s holds min(S − s, M) stashes.
struct one_forward_one_backward_builder {
    static constexpr std::string_view name = "1f1b";

    /// Contract: one stage per rank.
    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        return detail::one_forward_one_backward_order(g, 0);
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (!one_stage_per_rank(p.graph)) return does_not_apply("1F1B is for one stage per rank");
        return (*this)(p.graph);
    }
};
inline constexpr one_forward_one_backward_builder one_forward_one_backward{};

} // namespace optpipe
