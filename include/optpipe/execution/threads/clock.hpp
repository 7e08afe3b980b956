#pragma once

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace optpipe::threads {

/// Time since an instant that all ranks share.
class shared_clock {
public:
    using time_point = std::chrono::steady_clock::time_point;

    explicit shared_clock(time_point begin = std::chrono::steady_clock::now()) : begin_{begin} {}
    [[nodiscard]] std::chrono::nanoseconds now() const { return std::chrono::steady_clock::now() - begin_; }

    /// Returns early once `give_up` is true.
    void sleep_until(std::chrono::nanoseconds t, const std::atomic<bool>& give_up) const {
        constexpr std::chrono::milliseconds slice{20};
        for (auto left = t - now(); left.count() > 0 && !give_up.load(std::memory_order_relaxed); left = t - now())
            std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, slice));
    }

private:
    time_point begin_;
};

/// Makes sleeps of this thread end when they should, where the system otherwise adds 50 µs.
inline void sleep_precisely() {
#if defined(__linux__)
    static_cast<void>(prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL));
#endif
}

} // namespace optpipe::threads
