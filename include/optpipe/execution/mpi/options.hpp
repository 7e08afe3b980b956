#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/threads/options.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>

namespace optpipe::mpi {

struct options {
    /// Time limit when a rank waits for another rank. In the control channel, all ranks except rank 0 wait twice as
    /// long. The limit must be longer than a step. A failed run ends on all ranks within three times the limit.
    std::chrono::milliseconds patience{60'000};
    /// Limit in bytes for all device slabs of this rank together. `host_memory` is the limit for all host slabs of this
    /// rank. Empty if there is no limit.
    std::optional<std::size_t> device_memory{};
    std::optional<std::size_t> host_memory{};
    /// Returns the simulated times of copies between device and host. If empty, copies take their real time.
    threads::copy_time copies{};
    bool record_times = false;
};

namespace detail {

/// Converts the options to those for the lanes of one rank.
[[nodiscard]] inline threads::options lane_options(const options& how, rank self, std::size_t ranks) {
    threads::options lanes;
    lanes.patience = how.patience;
    const auto limit = [&](const std::optional<std::size_t>& bytes) {
        per_rank<std::size_t> all;
        if (bytes) all = per_rank<std::size_t>(ranks, std::numeric_limits<std::size_t>::max());
        if (bytes) all[self] = *bytes;
        return all;
    };
    lanes.device_memory = limit(how.device_memory);
    lanes.host_memory = limit(how.host_memory);
    lanes.copies = how.copies;
    lanes.record_times = how.record_times;
    return lanes;
}

} // namespace detail

} // namespace optpipe::mpi
