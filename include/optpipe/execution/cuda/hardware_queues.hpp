#pragma once

#include "optpipe/core/standard.hpp"

#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace optpipe::cuda::detail {

/// The number of hardware queues that all streams of a device share. CUDA reads this number from the environment when
/// it starts.
[[nodiscard]] inline std::size_t hardware_queues() {
    constexpr std::size_t usual = 8;
    const char* const given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"); // NOLINT(concurrency-mt-unsafe)
    if (!given) return usual;
    const std::string_view text{given};
    std::size_t count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    return count > 0 ? count : usual;
}

/// Returns a warning if a device has more lanes than hardware queues, else an empty text.
[[nodiscard]] inline std::string too_many_lanes(std::size_t lanes, int device) {
    const auto queues = hardware_queues();
    if (lanes <= queues) return {};
    return std::to_string(lanes) + " lanes on device " + std::to_string(device) + " share " + std::to_string(queues) +
           " hardware queues, in which they may wait for each other: set CUDA_DEVICE_MAX_CONNECTIONS, to 32 at most, "
           "before CUDA starts";
}

} // namespace optpipe::cuda::detail
