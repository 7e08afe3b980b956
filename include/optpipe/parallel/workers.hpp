#pragma once

#include "optpipe/core/standard.hpp"

#include <oneapi/tbb/task_group.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define OPTPIPE_UNWATCHED [[gnu::no_sanitize("thread")]]
#else
#define OPTPIPE_UNWATCHED
#endif

namespace optpipe::parallel {
namespace detail {

/// Tells a thread sanitizer that all work before `release` happens before the matching `acquire`. The sanitizer can't
/// see how TBB synchronizes threads.
inline void release([[maybe_unused]] void* thing) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(thing);
#endif
}
inline void acquire([[maybe_unused]] void* thing) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(thing);
#endif
}

} // namespace detail

/// Runs numbered jobs on the threads of the caller's arena, including the caller. The jobs see earlier writes of the
/// caller, and the caller sees all writes after `run`. `run` rethrows the first exception of a job, once all started
/// jobs are done.
template <class Job> class workers {
public:
    workers(std::size_t jobs, const Job& job) : jobs_{jobs}, job_{job} {}
    workers(const workers&) = delete;
    workers& operator=(const workers&) = delete;

    /// Returns when all jobs are done. At most `threads` jobs run at once.
    void run(std::size_t threads) {
        if (threads <= 1 || jobs_ <= 1) return work();
        oneapi::tbb::task_group group;
        detail::release(this);
        for (std::size_t k = 1; k < threads && k < jobs_; ++k)
            group.run(helper{this});
        open();
        work_carefully();
        group.wait();
        const std::scoped_lock lock{mutex_};
        if (failure_) std::rethrow_exception(failure_);
    }

private:
    struct helper {
        workers* of;
        OPTPIPE_UNWATCHED void operator()() const { of->help(); }
    };

    void open() {
        const std::scoped_lock lock{mutex_};
        is_open_ = true;
        opened_.notify_all();
    }
    void help() {
        detail::acquire(this);
        {
            std::unique_lock lock{mutex_};
            opened_.wait(lock, [&] { return is_open_; });
        }
        work_carefully();
        const std::scoped_lock lock{mutex_};
    }
    void work_carefully() noexcept {
        try {
            work();
        } catch (...) {
            next_.store(jobs_);
            const std::scoped_lock lock{mutex_};
            if (!failure_) failure_ = std::current_exception();
        }
    }
    void work() {
        for (auto k = next_.fetch_add(1); k < jobs_; k = next_.fetch_add(1))
            job_(k);
    }

    std::size_t jobs_;
    const Job& job_;
    std::atomic<std::size_t> next_{0};
    std::mutex mutex_;
    std::condition_variable opened_;
    bool is_open_ = false;
    std::exception_ptr failure_;
};

} // namespace optpipe::parallel

#undef OPTPIPE_UNWATCHED
