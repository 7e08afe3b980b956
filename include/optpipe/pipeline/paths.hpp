#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {

/// Earliest start times of a microbatch that is alone in the pipeline, and the least time that its remaining work
/// takes. The gradient of a stage is its I, or its B if the backward isn't split.
template <auto Stages> struct basic_microbatch_paths {
    per_stage<duration, Stages> forward_start{};
    per_stage<duration, Stages> gradient_start{};
    /// Least time from the end of a stage's gradient to the end of all work of this microbatch.
    per_stage<duration, Stages> after_gradient{};
    /// Least time from the start of a stage's F to the end of its gradient.
    per_stage<duration, Stages> lifespan{};
};
template <std::size_t Stages = dynamic> using microbatch_paths = basic_microbatch_paths<named_extent<Stages>()>;

template <pipeline_graph Graph>
[[nodiscard]] constexpr microbatch_paths<Graph::stage_extent> paths_of(const basic_problem<Graph>& p) {
    using times = per_stage<duration, Graph::stage_extent>;
    const auto count = p.graph.stages();
    microbatch_paths<Graph::stage_extent> paths{times(count), times(count), times(count), times(count)};
    duration at{};
    for (const stage s : p.graph.all_stages()) {
        if (!p.is_first(s)) at += p.hop(s.previous(), s);
        paths.forward_start[s] = at;
        at += p.costs[s].forward;
    }
    for (std::size_t i = count; i-- > 0;) {
        const stage s{i};
        if (!p.is_last(s)) at += p.hop(s.next(), s);
        paths.gradient_start[s] = at;
        at += p.gradient_time(s);
        paths.lifespan[s] = at - paths.forward_start[s];
    }
    for (const stage s : p.graph.all_stages()) {
        const duration own_weight = p.split_backward ? p.costs[s].backward_weight : duration{};
        paths.after_gradient[s] = own_weight;
        if (!p.is_first(s))
            paths.after_gradient[s] = std::max(own_weight, p.hop(s, s.previous()) + p.gradient_time(s.previous()) +
                                                               paths.after_gradient[s.previous()]);
    }
    return paths;
}

/// The position of every stage among the stages of its rank, longest lifespan first. Ties go to the earlier stage.
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_stage<std::size_t, Graph::stage_extent>
lifespan_places(const basic_problem<Graph>& p, const microbatch_paths<Graph::stage_extent>& paths) {
    per_stage<std::size_t, Graph::stage_extent> places(p.graph.stages());
    for (const auto& stages : stages_by_rank(p.graph))
        for (const stage s : stages)
            for (const stage other : stages)
                if (paths.lifespan[other] > paths.lifespan[s] ||
                    (paths.lifespan[other] == paths.lifespan[s] && other < s))
                    ++places[s];
    return places;
}

} // namespace optpipe
