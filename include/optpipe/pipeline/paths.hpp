#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {

/// The earliest start times of operations, and the least times of remaining work, for a microbatch alone in the
/// pipeline. The gradient of a stage is its I, or its B if backwards aren't split.
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
    const auto end_of_forward = [&](stage s) { return paths.forward_start[s] + p.costs[s].forward; };
    const auto end_of_gradient = [&](stage s) { return paths.gradient_start[s] + p.gradient_time(s); };
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_into(s, [&](const edge& e) {
            paths.forward_start[s] =
                std::max(paths.forward_start[s], end_of_forward(e.from) + e.size * p.hop(e.from, e.to));
        });
    for (std::size_t i = count; i-- > 0;) {
        const stage s{i};
        auto& at = paths.gradient_start[s];
        at = end_of_forward(s);
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            if (p.carries_gradients(e)) at = std::max(at, end_of_gradient(e.to) + e.size * p.hop(e.to, e.from));
        });
        p.groups.for_each_member(
            s, [&](stage member, duration delay) { at = std::max(at, end_of_forward(member) + delay); });
        paths.lifespan[s] = end_of_gradient(s) - paths.forward_start[s];
    }
    for (const stage s : p.graph.all_stages()) {
        auto& after = paths.after_gradient[s];
        if (p.split_backward) after = p.costs[s].backward_weight;
        p.graph.for_each_edge_into(s, [&](const edge& e) {
            if (p.carries_gradients(e))
                after = std::max(after,
                                 e.size * p.hop(e.to, e.from) + p.gradient_time(e.from) + paths.after_gradient[e.from]);
        });
    }
    return paths;
}

/// The position of every stage among the stages of its rank. Stages are ordered by lifespan, longest first. Ties go to
/// the earlier stage.
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
