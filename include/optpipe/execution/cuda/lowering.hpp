#pragma once

#include "optpipe/program/lower/options.hpp"

#include <cstddef>

namespace optpipe::cuda {

/// Largest number of bytes of host memory that one call pins, unless `options::pinned_part` is set.
inline constexpr std::size_t pinned_part_bytes = std::size_t{64} << 30U;

/// Options for programs on a GPU. Use these options, perhaps changed, for every program of a `cuda::executor`. With
/// these options, each part of a stash is contiguous on the device, as kernels expect. On the host, each part of a
/// stash lies within one part of the pinned memory.
///
/// `lower` doesn't know the executor, and the defaults of `lowering_options` minimise memory rather than the number of
/// pieces. Other options also work, but `execution::contiguous` throws if a part of a stash has several pieces.
[[nodiscard]] inline lowering_options lowering_defaults() {
    lowering_options how;
    how.placement = part_placement::contiguous;
    how.host_part = pinned_part_bytes;
    return how;
}

} // namespace optpipe::cuda
