#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::detail {

// Limits for files and command lines. Within these limits, planning fits in memory.
inline constexpr std::size_t most_ranks = std::size_t{1} << 12U;
inline constexpr std::size_t most_stages = std::size_t{1} << 12U;
inline constexpr std::size_t most_stage_microbatches = std::size_t{1} << 20U;

} // namespace optpipe::detail
