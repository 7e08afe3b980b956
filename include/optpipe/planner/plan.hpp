#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <concepts>
#include <vector>

namespace optpipe {

/// All strategies of this library, those that may prove quickly first.
[[nodiscard]] std::vector<any_search_strategy> standard_strategies();

/// The best schedule that can be found for a problem within the limits of `options`, with a proven bound on how much
/// better any could be.
///
/// Structural bounds, `options.start` and all published builders that fit come first, then `strategies` run
/// concurrently until the proof, the gap, the time limit, a stop request, or their effort is spent. A valid schedule is
/// found whenever one microbatch at a time fits; where none exists, the refusal names the rank and the memory that it
/// would need. The plan is never worse than what a published builder reaches, if time allowed it to be run.
///
/// Throws `input_error` for a problem that `validate` objects to, for options that make no sense, or for a start that
/// the problem can't execute, and rethrows exceptions of strategies and callbacks. Uses threads of its own and returns
/// when all of them are done.
[[nodiscard]] outcome<plan_result> plan(const problem& p, const plan_options& options,
                                        std::vector<any_search_strategy> strategies);

/// With all strategies of this library.
[[nodiscard]] outcome<plan_result> plan(const problem& p, const plan_options& options = {});

/// For a problem with static extents.
template <pipeline_graph Graph>
requires(!std::same_as<Graph, any_graph>)
    [[nodiscard]] outcome<plan_result> plan(const basic_problem<Graph>& p, const plan_options& options = {}) {
    return plan(to_problem(p), options);
}

} // namespace optpipe

// The search takes a minute to compile: with optpipe::compiled only the declarations are included.
#if !defined(OPTPIPE_COMPILED)
#include "optpipe/planner/plan_search.hpp"
#endif
