#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

/// Combined 1F1B (Megatron-Core, 2025): interleaved 1F1B with one more forward in the warm-up. In the steady state, a
/// forward and the next backward become a pair if `overlaps` lists them.
struct combined_1f1b_builder {
    static constexpr std::string_view name = "combined";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (p.overlaps.empty())
            return does_not_apply(
                "combined 1F1B is for problems with pairs that aren't made of slices or frozen stages");
        if (!is_loop_placed(p.graph) || p.graph.stages() == p.graph.ranks())
            return does_not_apply("combined 1F1B is for loop placement: stage s on rank s mod R, two or more on each");
        compute_lanes lanes(p.graph.ranks());
        for (const rank r : p.graph.all_ranks())
            fill(p, r, lanes[r]);
        return *interleave(p.graph, lanes);
    }

private:
    template <pipeline_graph Graph>
    static constexpr void fill(const basic_problem<Graph>& p, rank r, std::vector<operation>& lane) {
        const interleaved_lane numbered{p.graph, r};
        const auto all = numbered.size();
        const auto warm_up = std::min(numbered.warm_up() + 1, all);
        for (std::size_t k = 0; k < warm_up; ++k)
            numbered.add(k, operation_kind::forward, lane);
        for (std::size_t k = 0; k < all; ++k) {
            const auto at = lane.size();
            if (warm_up + k < all) numbered.add(warm_up + k, operation_kind::forward, lane);
            numbered.add(k, operation_kind::backward, lane);
            if (p.full_backward && lane.size() == at + 2) mark_pair(p.overlaps, lane[at], lane[at + 1]);
        }
    }
};
inline constexpr combined_1f1b_builder combined_1f1b{};

} // namespace optpipe
