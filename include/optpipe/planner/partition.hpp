#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/partition/partition_plan.hpp"
#include "optpipe/planner/plan_options.hpp"

#include <cstddef>
#include <span>

namespace optpipe {

/// Divides the layers of a model among the stages of one of the pipelines, for a short step. Edges between stages
/// always lead to later stages. Layers of different branches may share a stage. The initial partitions evenly divide
/// the number of layers, or the work at the speeds of the ranks. The search then moves one layer at a time from one
/// stage to another, in the order of the resulting bounds. If there are few partitions, the search tries all promising
/// partitions and proves the result to be the best.
///
/// The time limit covers all plans together. The search ends earlier if nothing is left to try or to prove.
/// `options.start` isn't used. `progress` is called only while the most promising partition is planned for longer. The
/// reported schedules may be longer than the best plan of another partition. If no tried partition has memory for one
/// microbatch at a time, returns the refusal that lacks the least memory. The refusal names the rank that lacks the
/// most memory. Throws `input_error` if `validate` rejects the problem.
[[nodiscard]] outcome<partition_plan> plan_partition(const partition_problem& p, const plan_options& options = {});

/// Divides the layers among the stages of one pipeline, `p`. The stages stay on their ranks.
[[nodiscard]] outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                     const plan_options& options = {});

/// Plans one of the pipelines with `counts[s]` layers on stage s, for comparison with `plan_partition`. If edges, pins
/// or `together` don't allow `counts`, the closest allowed partition is planned (`partition_plan::layers`). The time
/// limit covers the plan and the bound on all partitions. Refused if edges, pins and `together` allow no partition, or
/// if one microbatch at a time doesn't fit in memory. Throws `input_error` for an invalid problem. Contract: `pipeline`
/// is the index of a pipeline. `counts` has one number per stage.
[[nodiscard]] outcome<partition_plan> plan_layout(const partition_problem& p, std::size_t pipeline,
                                                  std::span<const std::size_t> counts,
                                                  const plan_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/planner/partition/partition_search.hpp"
#include "optpipe/planner/partition/partition_space.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace optpipe {

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const partition_problem& p, const plan_options& options) {
    if (auto found = validate(p); !found.empty()) throw input_error{"plan_partition", std::move(found)};
    return detail::partition_search{p, options}.run();
}

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                      const plan_options& options) {
    return plan_partition(partition_problem{{layers.begin(), layers.end()}, {p}}, options);
}

OPTPIPE_INLINE outcome<partition_plan> plan_layout(const partition_problem& p, std::size_t pipeline,
                                                   std::span<const std::size_t> counts, const plan_options& options) {
    if (auto found = validate(p); !found.empty()) throw input_error{"plan_layout", std::move(found)};
    OPTPIPE_EXPECT(pipeline < p.pipelines.size() && counts.size() == p.pipelines[pipeline].graph.stages(),
                   "plan_layout: one count for each stage of a pipeline");
    const stopwatch watch;
    const auto cuts = detail::cuts_of(p);
    std::vector<detail::partition_space> spaces;
    for (std::size_t i = 0; i < p.pipelines.size(); ++i)
        spaces.emplace_back(p, cuts, i);
    const auto& space = spaces[pipeline];
    if (!space.exists()) return does_not_apply("pins and layers that belong together leave no partition");
    const auto layers = space.close_to(counts);
    if (auto lacks = space.shortage_of(space.with(layers)); lacks.all > memory_size{}) {
        lacks.why.sentence = {};
        return lacks.why;
    }
    const auto space_of = [&](std::size_t i) -> const detail::partition_space& { return spaces[i]; };
    const auto bound = detail::bound_of_all(spaces.size(), space_of, options).least;
    auto how = options;
    if (how.time_limit) *how.time_limit -= std::min(*how.time_limit, std::chrono::duration<double>{watch.seconds()});
    auto planned = plan(space.with(layers), how);
    if (!planned) return planned.why();
    auto result = space.plan_of(layers, *std::move(planned));
    auto& found = result.planned;
    result.bound = std::min(bound, found.objective);
    detail::raise_bound(found, result.bound);
    result.tried = 1;
    result.seconds = watch.seconds();
    return result;
}

} // namespace optpipe
#endif
