#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/program/ir.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>

namespace optpipe::cuda {

/// Somebody's stream for a lane; null: the lane makes one of its own.
using stream_source = std::function<cudaStream_t(rank, lane_kind)>;

struct options {
    int device = 0;
    /// How long one rank waits for another at a message on the host, and for its device at the end of a step: it has to
    /// be longer than a step takes.
    std::chrono::milliseconds patience{60'000};
    /// The streams of an engine that there is already, or of green contexts. They are borrowed: whoever gives them
    /// keeps them until the lanes are gone. Without it each lane has a stream of its own, those of messages first in
    /// the line for multiprocessors.
    stream_source streams{};
    /// Events with times around every task. Not with graphs.
    bool record_times = false;
};

} // namespace optpipe::cuda
