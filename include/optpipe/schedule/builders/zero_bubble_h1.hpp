#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/zero_bubble_hand.hpp"

#include <string_view>

namespace optpipe {

/// ZB-H1 (Zero Bubble Pipeline Parallelism, Qi et al., 2024), which is 1F1B with split backwards. Weight gradients fill
/// the bubbles at the end. Needs one stage per rank, in any order of the ranks. Supports any number of microbatches.
///
/// The rank of stage s holds S − s stashes and s weight stashes. Equal stages need no more than the first rank of 1F1B.
/// With equal stages, T_W ≤ min(T_F, T_I), no communication and M ≥ S, the step takes (S − 1)(T_F + T_I − T_W) longer
/// than its work.
struct zero_bubble_h1_builder {
    static constexpr std::string_view name = "zb-h1";

    /// Contract: one stage per rank.
    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        OPTPIPE_EXPECT(one_stage_per_rank(g), "ZB-H1: needs one stage per rank");
        return detail::zero_bubble_by_hand(g, 1);
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (const auto why = detail::why_no_zero_bubble(p); !why.empty()) return does_not_apply(why);
        return (*this)(p.graph);
    }
};
inline constexpr zero_bubble_h1_builder zero_bubble_h1{};

} // namespace optpipe
