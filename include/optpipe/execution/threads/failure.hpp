#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/error.hpp"

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace optpipe::threads {

/// An object that may wait for other ranks. A failure wakes the object, because other ranks may never answer.
class wakeable {
public:
    virtual void wake() noexcept = 0;

protected:
    ~wakeable() = default;
};

/// The first failure reported by any rank. A failure ends all waits.
class failure {
public:
    [[nodiscard]] const std::atomic<bool>& happened() const { return happened_; }

    /// Reports a failure. Only the first reported failure counts.
    void report(rank where, const std::string& operation, const std::string& reason);
    [[nodiscard]] execution_error what() const;

    void enter(wakeable& w);
    void leave(wakeable& w);

private:
    mutable std::mutex mutex_;
    std::atomic<bool> happened_{false};
    std::optional<execution_error> what_;
    std::vector<wakeable*> waiting_;
};

/// Keeps a `wakeable` registered while this object exists.
class wake_registration {
public:
    wake_registration(failure& of, wakeable& w) : of_{of}, which_{w} { of_.enter(which_); }
    wake_registration(const wake_registration&) = delete;
    wake_registration& operator=(const wake_registration&) = delete;
    ~wake_registration() { of_.leave(which_); }

private:
    failure& of_;
    wakeable& which_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)

#include <algorithm>

namespace optpipe::threads {

OPTPIPE_INLINE void failure::report(rank where, const std::string& operation, const std::string& reason) {
    const std::scoped_lock lock{mutex_};
    if (what_) return;
    what_.emplace(where, operation, reason);
    happened_.store(true);
    for (auto* each : waiting_)
        each->wake();
}

OPTPIPE_INLINE execution_error failure::what() const {
    const std::scoped_lock lock{mutex_};
    return *what_;
}

OPTPIPE_INLINE void failure::enter(wakeable& w) {
    const std::scoped_lock lock{mutex_};
    waiting_.push_back(&w);
}

OPTPIPE_INLINE void failure::leave(wakeable& w) {
    const std::scoped_lock lock{mutex_};
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &w));
}

} // namespace optpipe::threads
#endif
