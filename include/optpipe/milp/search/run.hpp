#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/driver.hpp"
#include "optpipe/milp/search/given_hooks.hpp"
#include "optpipe/parallel/arena.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace optpipe::milp::search {

/// The entire search behind one function that isn't a template. With OPTPIPE_COMPILED, only one file of a program
/// includes this header. All other files see only the declaration in solve.hpp.
OPTPIPE_INLINE result run(const model& m, const solve_options& options, given_hooks hooks) {
    OPTPIPE_EXPECT(options.tolerance.relative > 0.0, "milp: the tolerance is above 0");
    OPTPIPE_EXPECT(options.relative_gap >= 0.0 && options.relative_gap <= 1.0, "milp: a relative gap is from 0 to 1");
    OPTPIPE_EXPECT(options.absolute_gap >= 0.0, "milp: an absolute gap isn't negative");
    OPTPIPE_EXPECT(!std::isnan(options.time_limit.count()), "milp: the time limit is a number");
    OPTPIPE_EXPECT(!std::isnan(options.progress_interval.count()), "milp: the progress interval is a number");
    OPTPIPE_EXPECT(options.conflict_search || options.tree_search, "milp: at least one search is on");
    auto possible = options;
    possible.threads = std::min(options.threads, parallel::available_cores());
    return driver{m, possible, std::move(hooks)}.solve();
}
OPTPIPE_INLINE result run_in_own_arena(const model& m, const solve_options& options, given_hooks hooks) {
    const auto threads = std::min(options.threads, parallel::available_cores());
    if (threads <= 1) return run(m, options, std::move(hooks));
    return parallel::arena{threads}.execute([&] { return run(m, options, std::move(hooks)); });
}

} // namespace optpipe::milp::search
