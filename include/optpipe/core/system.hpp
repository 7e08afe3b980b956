#pragma once

// Functions for processes and files that are missing from the standard library. In all layers up to the planner, only
// this header depends on the operating system. Without POSIX, each function falls back to a safe answer.

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

/// Whether the process exists on this machine, as far as this process can see.
inline bool is_running(long process) { return ::kill(static_cast<::pid_t>(process), 0) == 0 || errno != ESRCH; }

/// Writes all data of the file to the disk, not just to the system's buffers. Returns false, and sets `errno`, on
/// failure.
inline bool flush_to_disk(std::FILE* file) {
    // EINVAL means that the file system has nothing to flush.
    return std::fflush(file) == 0 && (::fsync(::fileno(file)) == 0 || errno == EINVAL);
}

/// Locks the file until this process closes it. Returns false if another process holds the lock, even on another
/// machine.
inline bool try_lock(std::FILE* file) {
    return ::flock(::fileno(file), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

/// Opens the file with this number for writing at the file's current position. Returns null if no file has this number.
inline std::FILE* open_inherited(int number) {
    const int copy = ::dup(number);
    std::FILE* file = copy < 0 ? nullptr : ::fdopen(copy, "wb");
    if (copy >= 0 && file == nullptr) ::close(copy);
    return file;
}

/// Whether the file with this number is open for writing. Sets `errno` if the result is false.
inline bool is_writable(int number) {
    const int flags = ::fcntl(number, F_GETFL);
    if (flags != -1 && (flags & O_ACCMODE) == O_RDONLY) errno = EBADF;
    return flags != -1 && (flags & O_ACCMODE) != O_RDONLY;
}

/// Whether the file exists and this process may write to it. Sets `errno` if the result is false.
inline bool may_write(const char* path) { return ::access(path, W_OK) == 0; }

#else

/// A random number. Two processes are unlikely to draw the same number.
inline long process_number() { return static_cast<long>(std::random_device{}() & 0x3fffffffU); }
inline bool is_running(long) { return true; }
inline bool flush_to_disk(std::FILE* file) { return std::fflush(file) == 0; }
inline bool try_lock(std::FILE*) { return true; }
inline std::FILE* open_inherited(int) { return nullptr; }
inline bool is_writable(int) { return true; }
inline bool may_write(const char*) { return true; }

#endif

/// Makes sleeps of this thread end on time. Linux otherwise lengthens each sleep by up to 50 µs.
inline void sleep_precisely() {
#if defined(__linux__)
    static_cast<void>(::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL));
#endif
}

/// Processor time, in seconds, of the thread that creates the clock. Other threads may read the clock while that thread
/// lives. Without a clock of processor time, the wall-clock time is used.
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
