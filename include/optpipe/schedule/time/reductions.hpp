#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <vector>

namespace optpipe {

/// The times of the reduction of a stage's gradients over all pipelines that train the model.
struct timed_reduction {
    optpipe::stage stage{};
    duration start{};
    duration end{};
    friend constexpr bool operator==(const timed_reduction&, const timed_reduction&) = default;
};

/// The measures of a step with data parallelism.
struct reduced_step {
    /// The reductions of all stages, in the order of their starts.
    std::vector<timed_reduction> reductions;
    /// The objective of the problem, with the reductions as part of the step.
    duration objective{};
    /// The increase of the objective by the part of the reductions that isn't hidden.
    duration exposed{};
};

/// Simulates the reductions of a schedule as `lower` issues them with `lowering_options::reduce`. Each reduction runs
/// after its stage's last weight gradient, beside the remaining operations. The reductions of a rank run one after the
/// other. `times` are the durations of the reductions, indexed by stage, in the problem's unit. All pipelines are
/// assumed to run the schedule at the same times, so no reduction waits. O(n) for n operations, and O(S log S) for S
/// stages.
template <pipeline_graph Graph>
[[nodiscard]] constexpr reduced_step simulate_reductions(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                                         const per_stage<duration>& times) {
    OPTPIPE_EXPECT(times.size() == p.graph.stages(), "simulate_reductions: one time for each stage");
    per_stage<duration> ready(p.graph.stages());
    per_rank<duration> first(p.graph.ranks(), duration::unlimited());
    for (const auto& [op, start, end] : s.operations) {
        if (is_transfer(op.kind)) continue;
        auto& engaged = first[p.rank_of(op.stage)];
        engaged = std::min(engaged, start);
        if (is_weight_gradient(op.kind)) ready[op.stage] = std::max(ready[op.stage], end);
    }
    std::vector<stage> queue;
    for (const stage at : p.graph.all_stages())
        queue.push_back(at);
    std::sort(queue.begin(), queue.end(),
              [&](stage a, stage b) { return ready[a] != ready[b] ? ready[a] < ready[b] : a < b; });

    const auto alone = objective_of(p, s);
    reduced_step step{{}, alone, {}};
    per_rank<duration> free(p.graph.ranks());
    for (const stage at : queue) {
        const rank r = p.rank_of(at);
        const auto start = std::max(ready[at], free[r]);
        free[r] = start + times[at];
        step.reductions.push_back({at, start, free[r]});
        const bool spans = p.objective == objective_kind::span;
        step.objective = std::max(step.objective, spans ? free[r] - first[r] : free[r]);
    }
    std::stable_sort(step.reductions.begin(), step.reductions.end(),
                     [](const timed_reduction& a, const timed_reduction& b) { return a.start < b.start; });
    step.exposed = step.objective - alone;
    return step;
}

} // namespace optpipe
