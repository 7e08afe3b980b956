#pragma once

// What the standard library has no form for: processes, and what lies below its files. The only header up to the
// planner that knows an operating system; where that isn't POSIX, each function does what is safe without it.

#include "optpipe/core/standard.hpp"

#include <cstdio>

#if __has_include(<unistd.h>) && !defined(_WIN32)
#define OPTPIPE_HAS_POSIX 1
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#else
#include <random>
#endif
#if defined(__linux__)
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
#else
#include <chrono>
#endif

namespace optpipe::detail {

#if defined(OPTPIPE_HAS_POSIX)

inline long process_number() { return static_cast<long>(::getpid()); }

/// On this machine, as far as this process can see.
inline bool is_running(long process) { return ::kill(static_cast<::pid_t>(process), 0) == 0 || errno != ESRCH; }

/// What was written is on the disk afterwards, not just with the system. False, with `errno`, if that fails.
inline bool flush_to_disk(std::FILE* file) {
    // EINVAL: a file system that has nothing to flush.
    return std::fflush(file) == 0 && (::fsync(::fileno(file)) == 0 || errno == EINVAL);
}

/// Marks the file as in use for as long as it is open here; false if it is by somebody else, on another machine too.
inline bool try_lock(std::FILE* file) {
    return ::flock(::fileno(file), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/// The open file of this number, to be written on from where it stands; null if there is none.
inline std::FILE* open_inherited(int number) {
    const int copy = ::dup(number);
    std::FILE* file = copy < 0 ? nullptr : ::fdopen(copy, "wb");
    if (copy >= 0 && file == nullptr) ::close(copy);
    return file;
}

/// Whether an open file of this number can be written to; else with `errno`.
inline bool is_writable(int number) {
    const int flags = ::fcntl(number, F_GETFL);
    if (flags != -1 && (flags & O_ACCMODE) == O_RDONLY) errno = EBADF;
    return flags != -1 && (flags & O_ACCMODE) != O_RDONLY;
}

/// Whether there is such a file and this process may write to it; else with `errno`.
inline bool may_write(const char* path) { return ::access(path, W_OK) == 0; }

#else

/// Any number: two processes hardly draw the same.
inline long process_number() { return static_cast<long>(std::random_device{}() & 0x3fffffffU); }
inline bool is_running(long) { return true; }
inline bool flush_to_disk(std::FILE* file) { return std::fflush(file) == 0; }
inline bool try_lock(std::FILE*) { return true; }
inline std::FILE* open_inherited(int) { return nullptr; }
inline bool is_writable(int) { return true; }
inline bool may_write(const char*) { return true; }

#endif

/// Makes sleeps of this thread end when they should, where the system otherwise adds 50 µs.
inline void sleep_precisely() {
#if defined(__linux__)
    static_cast<void>(::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL));
#endif
}

/// The processor time of the thread that makes it, in seconds, to be read by any thread while that one lives. Where the
/// system has no such clock, the wall clock: as if the thread never slept.
class thread_clock {
public:
#if defined(__linux__)
    thread_clock() { static_cast<void>(::pthread_getcpuclockid(::pthread_self(), &clock_)); }
    [[nodiscard]] double seconds() const {
        ::timespec now{};
        static_cast<void>(::clock_gettime(clock_, &now));
        return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
    }

private:
    ::clockid_t clock_ = CLOCK_MONOTONIC;
#else
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    }
#endif
};

} // namespace optpipe::detail
