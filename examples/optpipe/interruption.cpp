#include "interruption.hpp"

#include <optpipe/core/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <string>
#include <system_error>

namespace program {
namespace {

constexpr std::array signals{SIGINT, SIGTERM};
constexpr char stop = 's';
constexpr char quit = 'q';

/// The file descriptor that the handler writes to; it uses nothing else.
std::atomic<int> wakes{-1}; // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
static_assert(std::atomic<int>::is_always_lock_free);

void set_handler(int signal, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (const int other : signals)
        ::sigaddset(&action.sa_mask, other);
    ::sigaction(signal, &action, nullptr);
}

[[nodiscard]] bool is_ignored(int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void send(int write_end, char what) {
    while (::write(write_end, &what, 1) < 0 && errno == EINTR) {
    }
}

} // namespace

extern "C" {
/// Stopping a search takes locks, which a handler must not do. A thread waits for a byte from the handler, and stops
/// it.
static void wake_watcher(int) {
    const int error = errno;
    for (const int signal : signals)
        if (!is_ignored(signal)) set_handler(signal, SIG_DFL);
    send(wakes.load(), stop);
    errno = error;
}
}

interruption::interruption(bool tells) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0)
        throw optpipe::error{"can't wait for signals: " + std::generic_category().message(errno)};
    read_end_ = ends[0];
    write_end_ = ends[1];
    for (const int end : ends)
        ::fcntl(end, F_SETFD, FD_CLOEXEC);
    watcher_ = std::thread{[this, tells] { watch(tells); }};
    wakes = write_end_;
    for (const int signal : signals)
        if (!is_ignored(signal)) set_handler(signal, wake_watcher);
}

interruption::~interruption() {
    for (const int signal : signals)
        if (!is_ignored(signal)) set_handler(signal, SIG_DFL);
    send(write_end_, quit);
    watcher_.join();
    ::close(read_end_);
    ::close(write_end_);
}

void interruption::watch(bool tells) {
    char what = quit;
    while (::read(read_end_, &what, 1) < 0 && errno == EINTR) {
    }
    if (what != stop) return;
    source_.request_stop();
    // Starts a new line, below a progress line or a terminal's ^C.
    const std::string begin = ::isatty(STDERR_FILENO) == 1 ? "\n" : "";
    if (tells)
        std::cerr << begin + "optpipe: note: stopping, and keeping what was found; another signal ends it at once\n"
                  << std::flush;
    // The next byte comes from the destructor.
}

} // namespace program
