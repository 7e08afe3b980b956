#pragma once

#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/executor.hpp"

#include <chrono>

namespace optpipe::cuda::detail {

/// Converts times measured on a device to the clock of the host. Belongs to the current device. Only events of the same
/// step are compared, because CUDA's `float` times are inaccurate for long spans.
class device_clock {
public:
    using time_point = std::chrono::steady_clock::time_point;

    /// Must be called before the first event of a step. Records an event in the clock's own stream, and waits for it.
    void begin_step() {
        if (has_begun_) return;
        const auto before = std::chrono::steady_clock::now();
        stream_.record(epoch_);
        stream_.synchronize();
        on_host_ = before + (std::chrono::steady_clock::now() - before) / 2;
        has_begun_ = true;
    }
    void end_step() { has_begun_ = false; }

    /// Contract: both events have occurred.
    [[nodiscard]] execution::task_times between(const timed_event& start, const timed_event& end,
                                                time_point since) const {
        return {instant_of(start) - since, instant_of(end) - since};
    }

private:
    [[nodiscard]] time_point instant_of(const timed_event& e) const {
        return on_host_ + std::chrono::duration_cast<time_point::duration>(
                              std::chrono::duration<double, std::milli>{e.milliseconds_since(epoch_)});
    }

    stream stream_;
    timed_event epoch_;
    time_point on_host_{};
    bool has_begun_ = false;
};

} // namespace optpipe::cuda::detail
