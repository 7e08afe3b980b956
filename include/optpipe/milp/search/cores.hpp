#pragma once

#include "optpipe/core/standard.hpp"

#include <oneapi/tbb/info.h>

#include <algorithm>
#include <cstddef>

namespace optpipe::milp::search {

/// The number of cores that this process may use. TBB warns on standard error if an arena is made for more.
[[nodiscard]] inline std::size_t available_cores() {
    return static_cast<std::size_t>(std::max(1, oneapi::tbb::info::default_concurrency()));
}

} // namespace optpipe::milp::search
