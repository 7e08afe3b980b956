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

/// Returns the stream to use for a lane. If the stream is null, the lane creates its own stream.
using stream_source = std::function<cudaStream_t(rank, lane_kind)>;

struct options {
    int device = 0;
    /// The device of each rank of a `cluster`. Several ranks may share a device. If empty, all ranks are on `device`.
    std::vector<int> devices{};
    /// Time limit for another rank's message on the host, and for the device after a step. The limit must be longer
    /// than a step.
    std::chrono::milliseconds patience{60'000};
    /// Time limit after an error for the device to end its running work. After this limit, memory that the device may
    /// still use is never freed. A longer limit avoids more memory leaks, but delays the error.
    std::chrono::milliseconds drain{60'000};
    /// Streams of an existing engine, or of green contexts. The owner must keep the borrowed streams until the lanes
    /// are destroyed. Without a source, each lane creates a stream; streams for messages have the highest priority.
    stream_source streams{};
    /// Whether to record the times of all tasks by events. If true, steps can't be captured as graphs.
    bool record_times = false;
    /// Largest number of bytes of host memory that one call pins, rounded up to pages. Should equal
    /// `lowering_options::host_part`, or some copies are split in two.
    std::size_t pinned_part = pinned_part_bytes;
    /// The channel for failures, or null. The executor tells the channel immediately if this rank fails. The executor
    /// polls the channel while it waits for its device or for NCCL. `finish` throws the failure of another rank without
    /// waiting for the time limit. `bootstrap::tcp_control` and `mpi::control` are failure channels. The channel must
    /// outlive the executors.
    execution::failure_channel* failures = nullptr;
    /// Called with a warning if something is likely to be slow.
    std::function<void(const std::string&)> warn{};

    [[nodiscard]] int device_of(rank r) const { return devices.empty() ? device : devices.at(r.position()); }
};

} // namespace optpipe::cuda
