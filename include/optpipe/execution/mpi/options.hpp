#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/threads/options.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>

namespace optpipe::mpi {

struct options {
    /// How long one rank waits for another: at a message, at a minimum of the control channel (the others twice as long
    /// for rank 0), when a `member` is made, and at the end. Longer than a step takes. A run that fails is over on all
    /// ranks within three times as much.
    std::chrono::milliseconds patience{60'000};
    /// Bytes of this rank: of its device, all slabs together, and of its host. Without: as much as there is.
    std::optional<std::size_t> device_memory{};
    std::optional<std::size_t> host_memory{};
    /// How long copies between device and host take; without, as long as they do.
    threads::copy_time copies{};
    bool record_times = false;
};

namespace detail {

/// Of the lanes of one rank.
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
