#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/execution/nccl/watchdog.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::nccl {

/// A failed call of NCCL. A call that doesn't end in time throws `timeout_error`.
class error : public optpipe::error {
public:
    error(ncclResult_t code, const std::string& what)
        : optpipe::error{what + ": " + ncclGetErrorString(code)}, code_{code} {}
    [[nodiscard]] ncclResult_t code() const { return code_; }

private:
    ncclResult_t code_;
};

/// A call that exceeded the time limit.
class timeout_error : public optpipe::error {
public:
    using optpipe::error::error;
};

/// Limits of the device resources that NCCL uses for one communicator. NCCL chooses a value for each empty member.
/// Fewer blocks leave more multiprocessors for computations, but slow down large messages.
struct communicator_limits {
    std::optional<int> min_ctas{};
    std::optional<int> max_ctas{};
    std::optional<int> cga_cluster_size{};
};

/// A non-blocking communicator, which can be aborted. Only one thread at a time may use a communicator. During a call,
/// no thread may use another communicator of the same device. After an error or timeout, every rank must call `abort`
/// or the destructor, and nothing else.
class communicator {
public:
    using milliseconds = std::chrono::milliseconds;
    using abort_call = std::function<void(ncclComm_t)>;

    /// Returns when all ranks have joined. Throws if a rank doesn't join within `patience`. `id` is the result of
    /// `make_id()` on rank 0. While waiting, the constructor polls `failures`, and throws another rank's failure.
    communicator(const ncclUniqueId& id, int rank, int ranks, milliseconds patience, std::string name = "nccl",
                 const communicator_limits& limits = {}, const execution::failure_channel* failures = nullptr)
        : rank_{rank}, ranks_{ranks}, patience_{patience}, name_{std::move(name)}, failures_{failures} {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.minCTAs = limits.min_ctas.value_or(config.minCTAs);
        config.maxCTAs = limits.max_ctas.value_or(config.maxCTAs);
        config.cgaClusterSize = limits.cga_cluster_size.value_or(config.cgaClusterSize);
        try {
            settle(ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config), "ncclCommInitRankConfig");
        } catch (...) {
            abort();
            throw;
        }
    }
    /// Borrows a communicator, which this object never destroys. `end` is called at most once, in place of
    /// `ncclCommAbort`, and must not throw. On a blocking communicator, `batch::close` may wait for the peers (see
    /// `watchdog`).
    communicator(ncclComm_t borrowed, abort_call end, milliseconds patience, std::string name = "nccl",
                 const execution::failure_channel* failures = nullptr)
        : communicator_{borrowed}, rank_{rank_in(borrowed, name)}, ranks_{size_of(borrowed, name)}, patience_{patience},
          name_{std::move(name)}, end_{std::move(end)}, failures_{failures} {
        OPTPIPE_EXPECT(end_, "nccl: a borrowed communicator needs a way to end what is under way on it");
    }
    communicator(communicator&& other) noexcept
        : communicator_{std::exchange(other.communicator_, nullptr)}, rank_{other.rank_}, ranks_{other.ranks_},
          patience_{other.patience_}, name_{std::move(other.name_)}, healthy_{other.healthy_},
          end_{std::move(other.end_)}, failures_{other.failures_} {}
    communicator& operator=(communicator&&) = delete;
    ~communicator() {
        if (!communicator_) return;
        if (!healthy_)
            abort();
        else if (!end_)
            static_cast<void>(ncclCommDestroy(communicator_));
    }

    [[nodiscard]] static ncclUniqueId make_id() {
        ncclUniqueId id;
        const auto status = ncclGetUniqueId(&id);
        if (status != ncclSuccess) throw error{status, "ncclGetUniqueId"};
        return id;
    }
    /// The rank of this process in a communicator.
    [[nodiscard]] static int rank_in(ncclComm_t of, const std::string& name = "nccl") {
        return ask(ncclCommUserRank, "ncclCommUserRank", of, name);
    }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] const std::string& name() const { return name_; }

    /// Waits until an asynchronous call of NCCL has ended. `what` appears in the error message.
    void settle(ncclResult_t status, std::string_view what) {
        const auto deadline = std::chrono::steady_clock::now() + patience_;
        while (status == ncclInProgress) {
            if (std::chrono::steady_clock::now() >= deadline) fail_late(what);
            check_others();
            std::this_thread::yield();
            if (communicator_) {
                const auto asked = ncclCommGetAsyncError(communicator_, &status);
                if (asked != ncclSuccess) status = asked;
            }
        }
        if (!healthy_ && !communicator_) fail_late(what); // a watchdog has aborted the communicator
        if (status == ncclSuccess) return;
        if (status != ncclInvalidArgument) healthy_ = false; // an invalid argument leaves the communicator intact
        throw error{status, place(what)};
    }
    /// Throws if something has failed since the last call.
    void check_health(std::string_view what) {
        if (!communicator_) throw error{ncclInvalidUsage, place(what)};
        ncclResult_t status = ncclSuccess;
        const auto asked = ncclCommGetAsyncError(communicator_, &status);
        if (asked != ncclSuccess) status = asked;
        if (status != ncclSuccess && status != ncclInProgress) settle(status, what);
    }
    /// Aborts the running work on this rank. Outside of an NCCL group, `abort` returns when the aborted work has ended.
    /// Use `abort_together` for several communicators that may wait for each other.
    void abort() noexcept {
        healthy_ = false;
        if (!communicator_) return;
        const auto gone = std::exchange(communicator_, nullptr);
        if (end_)
            end_(gone);
        else
            static_cast<void>(ncclCommAbort(gone));
    }
    [[nodiscard]] int device() const { return ask(ncclCommCuDevice, "ncclCommCuDevice", communicator_, name_); }
    [[nodiscard]] bool healthy() const { return healthy_ && communicator_; }
    [[nodiscard]] ncclComm_t native() const { return communicator_; }

private:
    [[noreturn]] void fail_late(std::string_view what) {
        healthy_ = false;
        throw timeout_error{place(what) + ": not done after " + std::to_string(patience_.count()) + " ms"};
    }
    void check_others() {
        try {
            execution::check_failure(failures_);
        } catch (...) {
            healthy_ = false;
            throw;
        }
    }
    using question = ncclResult_t (*)(ncclComm_t, int*);
    static int ask(question call, const char* what, ncclComm_t of, const std::string& name) {
        int answer = 0;
        const auto status = call(of, &answer);
        if (status != ncclSuccess) throw error{status, name + ": " + what};
        return answer;
    }
    static int size_of(ncclComm_t of, const std::string& name) { return ask(ncclCommCount, "ncclCommCount", of, name); }
    [[nodiscard]] std::string place(std::string_view what) const {
        return name_ + ": rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + ": " + std::string{what};
    }

    ncclComm_t communicator_ = nullptr;
    int rank_;
    int ranks_;
    milliseconds patience_;
    std::string name_;
    bool healthy_ = true;
    /// Called to abort a borrowed communicator. Empty for a communicator that this object owns.
    abort_call end_{};
    const execution::failure_channel* failures_ = nullptr;
};

/// Aborts the running work on all communicators in the given ranges, in the order of the arguments.
template <class... Communicators> void abort_together(Communicators&... all) noexcept {
    const bool is_group = ncclGroupStart() == ncclSuccess;
    const auto abort_all = [](auto& range) {
        for (auto& each : range)
            each.abort();
    };
    (abort_all(all), ...);
    if (is_group) static_cast<void>(ncclGroupEnd());
}

/// An open group of NCCL calls. The sends and receives of a group progress together. Sends and receives with the same
/// peer and direction match in order. A group may use several communicators. Without `close`, the destructor closes the
/// group, and errors appear at the next call. If a call blocks for too long, the watchdog aborts the communicators. The
/// watchdog is null if no call can block.
class batch {
public:
    explicit batch(watchdog* watched_by = nullptr) : watched_by_{watched_by} {
        const auto status = ncclGroupStart();
        if (status != ncclSuccess) throw error{status, "ncclGroupStart"};
    }
    batch(const batch&) = delete;
    batch& operator=(const batch&) = delete;
    ~batch() {
        if (open_) static_cast<void>(end());
    }

    void send(communicator& by, std::span<const std::byte> data, int peer, cudaStream_t where) {
        put(by, ncclSend(data.data(), data.size(), ncclChar, peer, by.native(), where), "send to", peer);
    }
    void receive(communicator& by, std::span<std::byte> data, int peer, cudaStream_t where) {
        put(by, ncclRecv(data.data(), data.size(), ncclChar, peer, by.native(), where), "receive from", peer);
    }
    /// Replaces `data` on each rank by the sum over all ranks.
    template <class Real> void add_up(communicator& by, std::span<Real> data, cudaStream_t where) {
        static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);
        constexpr auto type = std::is_same_v<Real, float> ? ncclFloat : ncclDouble;
        note(by);
        const auto status = ncclAllReduce(data.data(), data.data(), data.size(), type, ncclSum, by.native(), where);
        if (is_failure(status)) by.settle(status, "ncclAllReduce");
    }
    /// Returns once the group's work is in the streams. `what` appears in the error message.
    void close(std::string_view what) {
        open_ = false;
        const auto status = end();
        for (auto* each : used_)
            each->settle(status, what);
        if (used_.empty() && is_failure(status)) throw error{status, std::string{what}};
    }

private:
    ncclResult_t end() {
        const watchdog::guard watched{watched_by_};
        return ncclGroupEnd();
    }
    void put(communicator& by, ncclResult_t status, const char* what, int peer) {
        note(by);
        if (is_failure(status)) by.settle(status, std::string{what} + " rank " + std::to_string(peer));
    }
    void note(communicator& by) {
        if (std::find(used_.begin(), used_.end(), &by) == used_.end()) used_.push_back(&by);
    }
    static bool is_failure(ncclResult_t status) { return status != ncclSuccess && status != ncclInProgress; }

    watchdog* watched_by_;
    std::vector<communicator*> used_;
    bool open_ = true;
};

} // namespace optpipe::nccl
