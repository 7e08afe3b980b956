#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/threads/failure.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

namespace optpipe::threads {

/// What stands behind a marker: how often it was recorded, and how often that has come true.
class marker_state final : public wakeable {
public:
    explicit marker_state(failure& f) : failure_{f}, registration_{f, *this} {}

    /// By the thread that puts something into lanes.
    std::uint32_t record() { return ++recorded_; }
    [[nodiscard]] std::uint32_t recorded() const { return recorded_; }

    /// By the lane that gets to a record. `ready`: when what it marks is over, which may be yet to come.
    void reach(std::uint32_t count, std::chrono::nanoseconds ready);
    /// By a lane that gets to a wait: blocks until then, and tells when what is marked is over. Returns at once if
    /// something has failed.
    std::chrono::nanoseconds await(std::uint32_t count) const;
    void wake() noexcept override;

private:
    static constexpr std::uint32_t woken = std::numeric_limits<std::uint32_t>::max();

    failure& failure_;
    std::uint32_t recorded_ = 0;
    std::atomic<std::uint32_t> reached_{0};
    std::atomic<std::int64_t> ready_{0};
    wake_registration registration_;
};

/// A place in a lane that other lanes can wait for.
class marker {
public:
    explicit marker(failure& f) : state_{std::make_unique<marker_state>(f)} {}
    [[nodiscard]] marker_state& state() const { return *state_; }

private:
    std::unique_ptr<marker_state> state_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)

namespace optpipe::threads {

OPTPIPE_INLINE void marker_state::reach(std::uint32_t count, std::chrono::nanoseconds ready) {
    ready_.store(ready.count(), std::memory_order_relaxed);
    auto before = reached_.load(std::memory_order_relaxed);
    // `wake` has the last word.
    while (before != woken && !reached_.compare_exchange_weak(before, count, std::memory_order_release)) {
    }
    reached_.notify_all();
}

OPTPIPE_INLINE std::chrono::nanoseconds marker_state::await(std::uint32_t count) const {
    for (;;) {
        const auto now = reached_.load(std::memory_order_acquire);
        if (now >= count || failure_.happened().load()) break;
        reached_.wait(now, std::memory_order_acquire);
    }
    return std::chrono::nanoseconds{ready_.load(std::memory_order_relaxed)};
}

OPTPIPE_INLINE void marker_state::wake() noexcept {
    reached_.store(woken, std::memory_order_release);
    reached_.notify_all();
}

} // namespace optpipe::threads
#endif
