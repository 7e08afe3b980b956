#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/cores.hpp"
#include "optpipe/milp/search/driver.hpp"
#include "optpipe/milp/search/given_hooks.hpp"

#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <utility>

namespace optpipe::milp::search {

/// The whole search behind one plain function. Where OPTPIPE_COMPILED is defined, one file of the program
/// includes this header, and all others only see the declaration in solve.hpp.
OPTPIPE_INLINE result run(const model& m, const solve_options& options, given_hooks hooks) {
    return driver{m, options, std::move(hooks)}.solve();
}
OPTPIPE_INLINE result run_in_own_arena(const model& m, const solve_options& options, given_hooks hooks) {
    if (options.threads <= 1) return run(m, options, std::move(hooks));
    oneapi::tbb::task_arena arena{static_cast<int>(std::min(options.threads, available_cores()))};
    return arena.execute([&] { return run(m, options, std::move(hooks)); });
}

} // namespace optpipe::milp::search
