#pragma once

#include "optpipe/program/lower/options.hpp"

#include <cstddef>

namespace optpipe::cuda {

/// Default of `options::pinned_part`, in bytes.
inline constexpr std::size_t pinned_part_bytes = std::size_t{64} << 30U;

/// Options for programs on a GPU. Use these options, perhaps changed, for every program of a `cuda::executor`. With
/// these options, each part of a stash is contiguous on the device. On the host, each part of a stash lies in one part
/// of pinned memory.
///
/// With other options, `execution::contiguous` throws if a part of a stash has several pieces.
[[nodiscard]] inline lowering_options lowering_defaults() {
    lowering_options how;
    how.placement = part_placement::contiguous;
    how.host_part = pinned_part_bytes;
    return how;
}

} // namespace optpipe::cuda
