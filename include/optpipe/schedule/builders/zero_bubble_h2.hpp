#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/zero_bubble_hand.hpp"

#include <string_view>

namespace optpipe {

/// ZB-H2 (Zero Bubble Pipeline Parallelism, Qi et al., 2024). Runs twice as many forwards as ZB-H1 before the first
/// gradient. The ranks are thus busy before the first gradient arrives, and need nearly twice the memory. Needs one
/// stage per rank, in any order of the ranks. Supports any number of microbatches.
///
/// The rank of stage s holds 2(S − s) − 1 stashes and 2s weight stashes. With equal stages, T_W ≤ min(T_F, T_I) and M ≥
/// 2S − 1, the span of a rank ≤ its work + (S − 1)(T_F + T_I + 2 T_c − 2 T_W). T_c is the time of a message.
struct zero_bubble_h2_builder {
    static constexpr std::string_view name = "zb-h2";

    /// Contract: one stage per rank.
    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        OPTPIPE_EXPECT(one_stage_per_rank(g), "ZB-H2: needs one stage per rank");
        return detail::zero_bubble_by_hand(g, 2);
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (const auto why = detail::why_no_zero_bubble(p); !why.empty()) return does_not_apply(why);
        return (*this)(p.graph);
    }
};
inline constexpr zero_bubble_h2_builder zero_bubble_h2{};

} // namespace optpipe
