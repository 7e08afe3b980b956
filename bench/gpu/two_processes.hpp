#pragma once

#include <optpipe/core/error.hpp>

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdlib>
#include <type_traits>
#include <utility>

namespace gpu_bench {

/// Two ranks of NCCL on one GPU. NCCL refuses two ranks of one host on a device, so these processes look like two hosts
/// with only sockets between them. Rank 1 is a child of rank 0 and ends with it. Must be made before any thread and
/// before the first call of CUDA or NCCL, whose state doesn't survive a fork.
class two_processes {
public:
    two_processes() {
        for (const auto& [name, value] : settings)
            setenv(name, value, 1);
        if (pipe(ends_) != 0) throw optpipe::error{"pipe failed"};
        child_ = fork();
        if (child_ < 0) throw optpipe::error{"fork failed"};
        if (self() == 1) prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("NCCL_HOSTID", self() == 0 ? "optpipe-0" : "optpipe-1", 1);
    }
    two_processes(const two_processes&) = delete;
    two_processes& operator=(const two_processes&) = delete;
    ~two_processes() {
        for (const int each : ends_)
            close(each);
        if (self() == 0) kill_other();
    }

    [[nodiscard]] int self() const { return child_ == 0 ? 1 : 0; }
    /// Returns the value that rank 0 makes, on both ranks.
    template <class Make> auto share(const Make& make) const {
        auto what = self() == 0 ? make() : decltype(make()){};
        static_assert(std::is_trivially_copyable_v<decltype(what)> && sizeof what < PIPE_BUF);
        const auto moved = self() == 0 ? write(ends_[1], &what, sizeof what) : read(ends_[0], &what, sizeof what);
        if (moved != static_cast<ssize_t>(sizeof what)) throw optpipe::error{"the other process is gone"};
        return what;
    }
    /// To be called by rank 0.
    void kill_other() {
        if (std::exchange(is_over_, true)) return;
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
    /// To be called by rank 0: waits until rank 1 has ended, and returns whether it succeeded.
    [[nodiscard]] bool other_ends_well() {
        is_over_ = true;
        int status = 0;
        return waitpid(child_, &status, 0) == child_ && status == 0;
    }

private:
    struct setting {
        const char* name;
        const char* value;
    };
    static constexpr setting settings[] = {
        {"NCCL_NET", "Socket"}, {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}};

    int ends_[2] = {-1, -1};
    pid_t child_ = -1;
    bool is_over_ = false;
};

} // namespace gpu_bench
