#pragma once

#include "optpipe/pipeline/problem.hpp"

#include <cstddef>

namespace optpipe::detail {

[[nodiscard]] inline std::size_t cells_of(const problem& p) { return p.graph.stages() * p.graph.microbatches(); }

} // namespace optpipe::detail
