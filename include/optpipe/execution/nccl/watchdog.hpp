#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace optpipe::nccl {

/// Watches calls that may block. If a watched call takes too long, the watchdog's own thread calls a function.
class watchdog {
public:
    /// `bark` is the function to call if a watched call takes too long. `bark` must not throw.
    watchdog(std::chrono::milliseconds patience, std::function<void()> bark)
        : patience_{patience}, bark_{std::move(bark)}, thread_{[this](const std::stop_token& stop) { watch(stop); }} {}

    /// While the guard exists, the watchdog `by` watches the time. If `by` is null, the guard does nothing. The guard's
    /// destructor waits for a running `bark`.
    class guard {
    public:
        explicit guard(watchdog* by) : by_{by} {
            if (!by_) return;
            const std::scoped_lock lock{by_->mutex_};
            by_->deadline_ = std::chrono::steady_clock::now() + by_->patience_;
            by_->changed_.notify_all();
        }
        guard(const guard&) = delete;
        guard& operator=(const guard&) = delete;
        ~guard() {
            if (!by_) return;
            const std::scoped_lock lock{by_->mutex_};
            by_->deadline_.reset();
        }

    private:
        watchdog* by_;
    };

private:
    void watch(const std::stop_token& stop) {
        std::unique_lock lock{mutex_};
        while (changed_.wait(lock, stop, [&] { return deadline_.has_value(); })) {
            const auto until = *deadline_;
            if (changed_.wait_until(lock, stop, until, [&] { return deadline_ != until; }) || stop.stop_requested())
                continue;
            bark_();
            deadline_.reset();
        }
    }

    std::chrono::milliseconds patience_;
    std::function<void()> bark_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::optional<std::chrono::steady_clock::time_point> deadline_;
    std::jthread thread_;
};

} // namespace optpipe::nccl
