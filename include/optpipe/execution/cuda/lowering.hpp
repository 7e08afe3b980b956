#pragma once

#include "optpipe/program/lower/options.hpp"

#include <cstddef>

namespace optpipe::cuda {

/// The most host memory that is pinned by one call, unless `options::pinned_part` says otherwise.
inline constexpr std::size_t pinned_part_bytes = std::size_t{64} << 30U;

/// Where to start from on a GPU: parts of stashes in one piece each, as kernels want them, and on the host in one part
/// of what is pinned.
///
/// `lower` doesn't know what will run its programs, and `lowering_options` begins with what needs the least memory, so
/// this is the one place that knows what a GPU wants: begin with it wherever a program is for a `cuda::executor`. With
/// other options programs run as well, but `execution::contiguous` throws where a part of a stash lies in pieces.
[[nodiscard]] inline lowering_options lowering_defaults() {
    lowering_options how;
    how.placement = part_placement::contiguous;
    how.host_part = pinned_part_bytes;
    return how;
}

} // namespace optpipe::cuda
