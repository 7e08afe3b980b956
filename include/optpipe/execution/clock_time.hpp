#pragma once

#include "optpipe/core/quantity.hpp"

#include <chrono>
#include <ratio>

namespace optpipe {

/// What a unit of a problem's time is on the clock: any multiple or fraction of a nanosecond.
using clock_time = std::chrono::duration<double, std::nano>;

/// A time of a problem on the clock, to the nanosecond below.
[[nodiscard]] constexpr std::chrono::nanoseconds on_clock(duration time, clock_time unit) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.value() * unit);
}

} // namespace optpipe
