#pragma once

#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/driver.hpp"
#include "optpipe/milp/search/given_hooks.hpp"

#include <utility>

#if defined(OPTPIPE_COMPILED)
#define OPTPIPE_COMPILED_ONCE
#else
#define OPTPIPE_COMPILED_ONCE inline
#endif

namespace optpipe::milp::search {

/// The whole search behind one plain function. Where OPTPIPE_COMPILED is defined, one file of the program
/// includes this header, and all others only see the declaration in solve.hpp.
OPTPIPE_COMPILED_ONCE result run(const model& m, const solve_options& options, given_hooks hooks) {
    return driver{m, options, std::move(hooks)}.solve();
}

} // namespace optpipe::milp::search

#undef OPTPIPE_COMPILED_ONCE
