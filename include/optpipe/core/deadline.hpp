#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <chrono>

namespace optpipe {

/// Returns `start + limit`, or `start` if the limit is negative. There is no deadline if the limit is NaN or above half
/// of the clock's range (146 years). Without a deadline, the result is the latest time that the clock can represent.
[[nodiscard]] inline std::chrono::steady_clock::time_point deadline_after(std::chrono::steady_clock::time_point start,
                                                                          std::chrono::duration<double> limit) {
    using clock = std::chrono::steady_clock;
    const std::chrono::duration<double> longest = 0.5 * std::chrono::duration<double>{clock::duration::max()};
    if (!(limit < longest)) return clock::time_point::max();
    return start + std::chrono::duration_cast<clock::duration>(std::max(limit, std::chrono::duration<double>{}));
}

} // namespace optpipe
