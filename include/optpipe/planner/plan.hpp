#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <concepts>
#include <vector>

namespace optpipe {

/// All strategies of this library. Strategies that may prove optimality quickly come first.
[[nodiscard]] std::vector<any_search_strategy> standard_strategies();

/// The best schedule found within the limits of `options`, and a proven lower bound on the objective of every schedule.
///
/// Structural bounds, `options.start` and all published builders that fit in memory come first. After that,
/// `strategies` run concurrently. The search ends when the plan is proven optimal, when the gap or the time limit is
/// reached, after a stop request, or when all effort is used up. A valid schedule is found whenever one microbatch at a
/// time fits in memory. Without a valid schedule, the refusal names the rank and the memory that it would need. The
/// plan is never worse than the schedule of a published builder that had time to run.
///
/// Throws `input_error` if `validate` rejects the problem, if options are invalid, or if the problem can't execute
/// `options.start`. Rethrows exceptions of strategies and callbacks. Uses its own threads, and returns when all of them
/// have finished.
[[nodiscard]] outcome<plan_result> plan(const problem& p, const plan_options& options,
                                        std::vector<any_search_strategy> strategies);

/// Plans with all strategies of this library.
[[nodiscard]] outcome<plan_result> plan(const problem& p, const plan_options& options = {});

/// Plans a problem with static extents, with all strategies of this library.
template <pipeline_graph Graph>
requires(!std::same_as<Graph, any_graph>)
    [[nodiscard]] outcome<plan_result> plan(const basic_problem<Graph>& p, const plan_options& options = {}) {
    return plan(to_problem(p), options);
}

} // namespace optpipe

// The search takes a minute to compile. With optpipe::compiled, only the declarations are included.
#if !defined(OPTPIPE_COMPILED)
#include "optpipe/planner/plan_search.hpp"
#endif
