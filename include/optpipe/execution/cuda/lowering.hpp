#pragma once

#include "optpipe/program/lower/options.hpp"

namespace optpipe::cuda {

/// Where to start from on a GPU: parts of stashes in one piece each, as kernels want them.
[[nodiscard]] inline lowering_options lowering_defaults() {
    lowering_options how;
    how.placement = part_placement::contiguous;
    return how;
}

} // namespace optpipe::cuda
