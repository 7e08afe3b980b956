#pragma once

#include "optpipe/program/lower/options.hpp"

#include <cstddef>

namespace optpipe::cuda {

/// Most bytes of host memory that one call pins, unless `options::pinned_part` says otherwise.
inline constexpr std::size_t pinned_part_bytes = std::size_t{64} << 30U;

/// The options to start from for programs on a GPU: use them for every program of a `cuda::executor`. Each part of a
/// stash is contiguous, as kernels expect, and on the host it lies within one pinned part.
///
/// `lower` doesn't know what will run its programs, and the defaults of `lowering_options` minimise memory, not the
/// number of pieces. Other options also work, but `execution::contiguous` throws if a part of a stash has several
/// pieces.
[[nodiscard]] inline lowering_options lowering_defaults() {
    lowering_options how;
    how.placement = part_placement::contiguous;
    how.host_part = pinned_part_bytes;
    return how;
}

} // namespace optpipe::cuda
