#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/bounds/pair_area.hpp"
#include "optpipe/planner/bounds/storage_mix.hpp"
#include "optpipe/schedule/bounds/lone_rank.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"

namespace optpipe {

/// A lower bound on the objective of every valid schedule, found without searching for schedules. The result is the
/// bound of `strong_bounds_of`. If the problem is plain, `storage_mix_bound` and `lone_rank_bound` may raise this
/// bound. `pair_area_bound` may raise the bound of problems with pairs. Deterministic.
template <pipeline_graph Graph> [[nodiscard]] duration lower_bound(const basic_problem<Graph>& p) {
    const auto bound = strong_bounds_of(p).best();
    return is_plain(p) ? lone_rank_bound(p, storage_mix_bound(p, bound)) : pair_area_bound(p, bound);
}

} // namespace optpipe
