#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/system.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>

namespace optpipe {

/// Keeps the processor time of a search's threads below a share of the wall-clock time.
///
/// Threads of the search call `enter` and `leave`. Between `enter` and `leave`, a thread calls `pause_if_over` wherever
/// it polls whether to stop. `pause_if_over` reads the processor clocks of the threads every millisecond. Above the
/// share, all callers sleep until the excess is paid back or a stop is requested. On average, the threads keep to their
/// share, except while a search doesn't poll. All members may be called from any thread.
class processor_share {
public:
    /// `processors` is the processor time per wall-clock time. For example, 0.5 stands for half of one processor.
    /// Unlimited by default.
    explicit processor_share(double processors = std::numeric_limits<double>::infinity());
    processor_share(const processor_share&) = delete;
    processor_share& operator=(const processor_share&) = delete;

    /// Counts the calling thread from now on. `search` is the address of the object that the thread works for. The
    /// address distinguishes searches that use the same share.
    void enter(const void* search = nullptr);
    /// Stops counting the calling thread.
    void leave(const void* search = nullptr);
    /// Stops counting all threads of `search`. Needed if workers of the search haven't called `leave` when the search
    /// ends.
    void leave_all(const void* search = nullptr);
    /// The processor time of all threads that entered, in seconds.
    [[nodiscard]] double seconds() const;

    /// Sleeps while the threads have used more than their share, but not beyond `end`. An excess that remains at `end`
    /// still counts in later calls.
    void pause_if_over(const std::stop_token& stop,
                       std::chrono::steady_clock::time_point end = std::chrono::steady_clock::time_point::max());

private:
    using clock = std::chrono::steady_clock;
    /// Time between two reads of the processor clocks. A read is a system call of about 0.3 µs per thread.
    static constexpr std::chrono::milliseconds interval{1};
    /// Longest time for which unused processor time is saved up. A burst at full speed lasts about this time at most.
    static constexpr std::chrono::milliseconds burst{10};

    struct thread {
        std::thread::id id;
        const void* search;
        detail::thread_clock clock;
        double begin = 0.0;
        [[nodiscard]] double seconds() const { return clock.seconds() - begin; }
    };

    static clock::duration as_ticks(double seconds);
    [[nodiscard]] double used() const;
    /// Updates the budget of processor time for the time since the last call. Adds the share of the wall-clock time,
    /// and subtracts the processor time used.
    void pay(clock::time_point now);

    const double processors_;
    mutable std::mutex mutex_{};
    std::condition_variable_any paid_back_{};
    std::list<thread> threads_{};
    double left_ = 0.0;
    double taken_ = 0.0;
    double budget_ = 0.0;
    clock::time_point paid_at_{};
    std::atomic<clock::rep> next_check_{0};
};

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/contract.hpp"

#include <algorithm>

namespace optpipe {

OPTPIPE_INLINE processor_share::processor_share(double processors) : processors_{processors} {
    OPTPIPE_EXPECT(processors > 0.0, "processor_share: must be above 0");
}

OPTPIPE_INLINE void processor_share::enter(const void* search) {
    const std::scoped_lock lock{mutex_};
    threads_.push_back({std::this_thread::get_id(), search, {}, 0.0});
    threads_.back().begin = threads_.back().clock.seconds();
    paid_at_ = std::max(paid_at_, clock::now() - burst);
}

OPTPIPE_INLINE void processor_share::leave(const void* search) {
    const std::scoped_lock lock{mutex_};
    const auto own = std::find_if(threads_.begin(), threads_.end(), [search](const thread& t) {
        return t.id == std::this_thread::get_id() && t.search == search;
    });
    if (own == threads_.end()) return;
    left_ += own->seconds();
    threads_.erase(own);
}

OPTPIPE_INLINE void processor_share::leave_all(const void* search) {
    const std::scoped_lock lock{mutex_};
    threads_.remove_if([&](const thread& t) {
        if (t.search != search) return false;
        left_ += t.seconds();
        return true;
    });
}

OPTPIPE_INLINE double processor_share::seconds() const {
    const std::scoped_lock lock{mutex_};
    return used();
}

OPTPIPE_INLINE void processor_share::pause_if_over(const std::stop_token& stop,
                                                   std::chrono::steady_clock::time_point end) {
    if (processors_ == std::numeric_limits<double>::infinity()) return;
    const auto now = clock::now();
    if (now.time_since_epoch().count() < next_check_.load(std::memory_order_relaxed)) return;
    std::unique_lock lock{mutex_};
    pay(now);
    while (budget_ < 0.0 && !stop.stop_requested() && clock::now() < end) {
        next_check_.store(0, std::memory_order_relaxed);
        const auto paid_back = clock::now() + as_ticks(-budget_ / processors_);
        paid_back_.wait_until(lock, stop, std::min(paid_back, end), [] { return false; });
        pay(clock::now());
    }
    next_check_.store((clock::now() + interval).time_since_epoch().count(), std::memory_order_relaxed);
}

OPTPIPE_INLINE processor_share::clock::duration processor_share::as_ticks(double seconds) {
    return std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds));
}

OPTPIPE_INLINE double processor_share::used() const {
    double sum = left_;
    for (const auto& t : threads_)
        sum += t.seconds();
    return sum;
}

OPTPIPE_INLINE void processor_share::pay(clock::time_point now) {
    if (now <= paid_at_) return;
    const double spent = used();
    const double most = processors_ * std::chrono::duration<double>(burst).count();
    budget_ += processors_ * std::chrono::duration<double>(now - paid_at_).count() - (spent - taken_);
    budget_ = std::min(budget_, most);
    taken_ = spent;
    paid_at_ = now;
}

} // namespace optpipe
#endif
