#pragma once

#include "optpipe/execution/cuda/lowering.hpp"
#include "optpipe/program/lower/options.hpp"

namespace optpipe::nccl {

/// Options for programs that run with NCCL. Each communicator of `communicator_layout::per_direction` has one lane.
/// Receives start late, because a waiting receive occupies multiprocessors.
[[nodiscard]] inline lowering_options lowering_defaults() {
    auto how = cuda::lowering_defaults();
    how.lanes = message_lanes::per_direction;
    how.receives = receive_issue::when_due;
    return how;
}

} // namespace optpipe::nccl
