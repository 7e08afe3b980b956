#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Replaces the CUDA runtime in tests by devices whose streams are queues. One thread runs them and picks a random
/// stream among those that can continue. So actions that the program doesn't order may happen in any order, and data
/// that is used too early is wrong. Defines the functions of the runtime that the library calls; a test that links it
/// needs no GPU.
///
/// As strict as the documentation allows: destroying a stream doesn't wait for its work, freeing memory waits for all
/// of it; an error stays until it is read; events, streams and launches have a device; queues may be finite.
namespace fake_cuda {

struct settings {
    int devices = 8;
    std::uint64_t seed = 1;
    /// Bytes of device memory, which all devices share.
    std::size_t memory = std::size_t{1} << 26U;
    /// The n-th call with this name (n = `failing_number`, from 1) fails with `failure`. Release functions still
    /// release, as they do if the error is one of earlier work.
    std::string failing_call{};
    std::size_t failing_number = 1;
    cudaError_t failure = cudaErrorUnknown;
    /// The n-th copy of this kind (n = `slow_number`, from 1; 0 for none) takes `slow_for`, or until `release`.
    cudaMemcpyKind slow_kind = cudaMemcpyDefault;
    std::size_t slow_number = 0;
    std::chrono::milliseconds slow_for{};
    /// A call that waits longer than this hangs: it gives up, which is a complaint.
    std::chrono::milliseconds hang_after{10'000};
    /// The streams of a device share this number of hardware queues, each of which runs its work in the order of issue.
    /// 0: unlimited.
    std::size_t hardware_queues = 0;
    /// Capacity of a stream, beyond which calls that add work wait. 0: unlimited.
    std::size_t launch_queue = 0;
    /// The value of `cudaDevAttrHostNumaId`.
    int numa_node = -1;
    /// Time between two recorded events on the clock of the devices. 0: real time.
    std::chrono::nanoseconds tick{};
    /// Whether to log accesses for `races`.
    bool log_accesses = false;
};

/// The objects that exist and haven't been released.
struct census {
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t device_bytes = 0;
    std::size_t pinned_ranges = 0;
    std::size_t graphs = 0;
    std::size_t contexts = 0;

    friend bool operator==(const census&, const census&) = default;
};

/// Resets the devices. Nothing of earlier ones may still be in use.
void reset(const settings& s = {});
census alive();
/// The names of all calls since the reset, in order.
std::vector<std::string> calls();
std::size_t count(const std::string& call);
/// Errors of a program that a device doesn't always notice: use of destroyed streams and events, of events that were
/// never recorded, copies from or to memory that doesn't exist or isn't pinned, copies between devices without peer
/// access, and calls that wait forever.
std::vector<std::string> complaints();
void complain(std::string what);
/// Whether all of it was allocated by cudaMalloc.
bool is_device_memory(const void* begin, std::size_t bytes);
/// Advances the clock of the devices.
void advance_clock(std::chrono::nanoseconds by);
/// Releases held copies, and waits until nothing is running.
void release();

/// The reads and writes of one piece of work on a device.
struct range {
    const void* begin = nullptr;
    std::size_t bytes = 0;
};
struct accesses {
    std::string name;
    std::vector<range> reads;
    std::vector<range> writes;
};
/// Declares the accesses of the next work that this thread puts into a stream; for host functions, which play kernels.
void declare(accesses what);
/// Unordered pairs of work, one of which writes memory that the other one reads or writes: no stream, event, message,
/// or waiting thread orders them. Independent of the order in which they happened (vector clocks; Mattern 1989). Needs
/// `log_accesses`.
std::vector<std::string> races();

/// Work of another library. Both functions are called by the device's thread. `ready(number)` is called from the time
/// when the work is first in its stream until it returns true, and must not call CUDA; then `run()`. `number` is the
/// work's number in the log.
struct work {
    std::function<bool(std::size_t number)> ready;
    std::function<void()> run;
};
/// Puts work into a stream. `make` is called for it, once per launch if the stream is being captured. `keep` lives as
/// long as the work, or as the graph with it.
void enqueue(cudaStream_t stream, accesses what, std::function<work()> make, std::shared_ptr<void> keep);
/// Records that neither of two pieces of work is over before the other has begun. Callable from `ready`.
void meet(std::size_t one, std::size_t other);
/// Waits until `over()`, or complains that `call` hangs.
void wait_until(const std::string& call, const std::function<bool()>& over);
/// Tells that a condition of a `ready` may have changed.
void poke();
/// Whether a call fails by the settings; counts it.
bool called(const char* name, cudaError_t& result);

} // namespace fake_cuda
