#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/lowering.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/program/ir.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace optpipe::cuda {

/// Somebody's stream for a lane; null: the lane makes one of its own.
using stream_source = std::function<cudaStream_t(rank, lane_kind)>;

struct options {
    int device = 0;
    /// The devices of a `cluster`'s ranks, which may share some; empty: all are on `device`.
    std::vector<int> devices{};
    /// How long one rank waits for another at a message on the host, and for its device at the end of a step: it has to
    /// be longer than a step takes.
    std::chrono::milliseconds patience{60'000};
    /// How long after an error the device may take to end what is under way. Memory that it may use even then is never
    /// freed: a longer time leaks less, and holds up the error.
    std::chrono::milliseconds drain{60'000};
    /// The streams of an engine that there is already, or of green contexts. They are borrowed: whoever gives them
    /// keeps them until the lanes are gone. Without it each lane has a stream of its own, those of messages first in
    /// the line for multiprocessors.
    stream_source streams{};
    /// Events with times around every task. Not with graphs.
    bool record_times = false;
    /// The most host memory that is pinned by one call, in bytes, rounded up to pages: drivers refuse very large ones.
    /// Of programs with another `lowering_options::host_part`, what lies in two parts is copied in two pieces.
    std::size_t pinned_part = pinned_part_bytes;
    /// Told at once what fails on this rank, and asked, wherever this rank waits for its device or for NCCL, what
    /// failed on others: then `finish` throws that instead of waiting out its patience. `bootstrap::tcp_control` and
    /// `mpi::control` are two. It outlives executors.
    execution::failure_channel* failures = nullptr;
    /// Told what is likely to be slow; without it nobody is.
    std::function<void(const std::string&)> warn{};

    [[nodiscard]] int device_of(rank r) const { return devices.empty() ? device : devices.at(r.position()); }
};

} // namespace optpipe::cuda
