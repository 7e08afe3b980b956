#pragma once

#include "optpipe/execution/cuda/lowering.hpp"
#include "optpipe/program/lower/options.hpp"

namespace optpipe::nccl {

/// Where to start from with NCCL: a lane per communicator of `communicator_layout::per_direction`, and receives that
/// don't hold multiprocessors long before their messages come.
[[nodiscard]] inline lowering_options lowering_defaults() {
    auto how = cuda::lowering_defaults();
    how.lanes = message_lanes::per_direction;
    how.receives = receive_issue::when_due;
    return how;
}

} // namespace optpipe::nccl
