#pragma once

#include "optpipe/planner/builders_part.hpp"
#include "optpipe/planner/part.hpp"

#include <vector>

namespace optpipe {

/// Every part of the search that this library has, those that may prove quickly first.
[[nodiscard]] inline std::vector<any_search_part> standard_parts() { return {adaptive_part{}}; }

} // namespace optpipe
