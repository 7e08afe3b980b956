#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/threads/failure.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>

namespace optpipe::threads {

/// A marker's number of records, and the number that lanes have reached.
class marker_state final : public wakeable {
public:
    explicit marker_state(failure& f) : failure_{f}, registration_{f, *this} {}

    /// Called by the thread that issues commands.
    std::uint32_t record() { return ++recorded_; }
    [[nodiscard]] std::uint32_t recorded() const { return recorded_; }

    /// Called by a lane that reaches a record. `ready` is the time, perhaps in the future, at which the marked commands
    /// end.
    void reach(std::uint32_t count, std::chrono::nanoseconds ready);
    /// Called by a lane that reaches a wait. Blocks until the record is reached. Returns the time at which the marked
    /// commands end. After a failure, returns immediately.
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

/// A point in a lane that other lanes can wait for.
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
    // A value stored by `wake` is never overwritten.
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
