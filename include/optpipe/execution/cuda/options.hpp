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

/// Returns the stream to use for a lane; null: the lane creates its own.
using stream_source = std::function<cudaStream_t(rank, lane_kind)>;

struct options {
    int device = 0;
    /// The device of each rank of a `cluster`; ranks may share a device. If empty, all ranks are on `device`.
    std::vector<int> devices{};
    /// Time limit of a rank's waits: for another rank at a message on the host, and for its device at the end of a
    /// step. Must be longer than a step takes.
    std::chrono::milliseconds patience{60'000};
    /// Time limit for the device to end its running work after an error. If the device doesn't end in time, memory that
    /// it may still use is never freed. With a longer limit less memory is lost, but the error comes later.
    std::chrono::milliseconds drain{60'000};
    /// Streams of an existing engine, or of green contexts. The streams are borrowed: their owner keeps them until the
    /// lanes are destroyed. If empty, each lane creates its own stream; streams for messages have the highest priority.
    stream_source streams{};
    /// Whether to record times with events around every task. If times are recorded, graphs can't be captured.
    bool record_times = false;
    /// Most bytes of host memory that one call pins, rounded up to pages, because drivers refuse to pin very many pages
    /// at once. In programs with another `lowering_options::host_part`, data across two parts is copied in two pieces.
    std::size_t pinned_part = pinned_part_bytes;
    /// The channel that is told at once about a failure on this rank. While this rank waits for its device or for NCCL,
    /// it asks the channel for failures of other ranks. `finish` throws a failure of another rank at once, without
    /// waiting for the time limit. `bootstrap::tcp_control` and `mpi::control` are such channels. The channel must
    /// outlive the executors.
    execution::failure_channel* failures = nullptr;
    /// Called with a warning if something is likely to be slow.
    std::function<void(const std::string&)> warn{};

    [[nodiscard]] int device_of(rank r) const { return devices.empty() ? device : devices.at(r.position()); }
};

} // namespace optpipe::cuda
