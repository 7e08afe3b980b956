#pragma once

#include "optpipe/core/standard.hpp"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <algorithm>
#include <cstddef>

namespace optpipe::parallel {

/// The number of cores that this process may use. TBB warns on standard error if an arena has more threads than cores.
[[nodiscard]] inline std::size_t available_cores() {
    return static_cast<std::size_t>(std::max(1, oneapi::tbb::info::default_concurrency()));
}

/// A group of threads, including the thread that calls `execute`. `workers` inside of `execute` use only these threads.
class arena {
public:
    explicit arena(std::size_t threads) : arena_{static_cast<int>(threads)} {}

    /// Calls `work` and returns its result.
    template <class Work> decltype(auto) execute(const Work& work) { return arena_.execute(work); }

private:
    friend class arena_observer;

    oneapi::tbb::task_arena arena_;
};

/// Observes which threads join and leave an arena; threads that call `execute` don't count. A derived class calls
/// `start` last in its constructor, and `stop` first in its destructor.
class arena_observer : oneapi::tbb::task_scheduler_observer {
public:
    arena_observer(const arena_observer&) = delete;
    arena_observer& operator=(const arena_observer&) = delete;

protected:
    explicit arena_observer(arena& observed) : oneapi::tbb::task_scheduler_observer{observed.arena_} {}
    ~arena_observer() override = default;

    void start() { observe(true); }
    void stop() { observe(false); }

private:
    /// Called on the thread that joins or leaves.
    virtual void joined() = 0;
    virtual void left() = 0;

    void on_scheduler_entry(bool is_worker) final {
        if (is_worker) joined();
    }
    void on_scheduler_exit(bool is_worker) final {
        if (is_worker) left();
    }
};

} // namespace optpipe::parallel
