#pragma once

#include "optpipe/core/system.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace optpipe::threads {

/// Measures the time since an instant that all ranks share.
class shared_clock {
public:
    using time_point = std::chrono::steady_clock::time_point;

    explicit shared_clock(time_point begin = std::chrono::steady_clock::now()) : begin_{begin} {}
    [[nodiscard]] std::chrono::nanoseconds now() const { return std::chrono::steady_clock::now() - begin_; }

    /// Sleeps until `t`, or until `give_up` is true.
    void sleep_until(std::chrono::nanoseconds t, const std::atomic<bool>& give_up) const {
        constexpr std::chrono::milliseconds slice{20};
        for (auto left = t - now(); left.count() > 0 && !give_up.load(std::memory_order_relaxed); left = t - now())
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, slice));
    }

private:
    time_point begin_;
};

using optpipe::detail::sleep_precisely;

} // namespace optpipe::threads
