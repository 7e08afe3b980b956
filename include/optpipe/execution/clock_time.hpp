#pragma once

#include "optpipe/core/quantity.hpp"

#include <chrono>
#include <ratio>

namespace optpipe {

/// Duration of a problem's unit of time on the clock, in nanoseconds. The number may be fractional.
using clock_time = std::chrono::duration<double, std::nano>;

/// A time of the problem, converted to the clock and rounded down to a nanosecond.
[[nodiscard]] constexpr std::chrono::nanoseconds on_clock(duration time, clock_time unit) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.value() * unit);
}

} // namespace optpipe
