#pragma once

#include "optpipe/core/standard.hpp"

#include <oneapi/tbb/info.h>

#include <algorithm>
#include <cstddef>

namespace optpipe::milp::search {

/// How many cores this process may use. TBB says so on standard error where an arena is made for more.
[[nodiscard]] inline std::size_t available_cores() {
    return static_cast<std::size_t>(std::max(1, oneapi::tbb::info::default_concurrency()));
}

} // namespace optpipe::milp::search
