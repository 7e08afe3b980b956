#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Stands in for the CUDA runtime in tests: devices whose streams are queues, worked off by one thread that picks a
/// stream at random among those that can go on. So what a program doesn't make wait may happen in any order, and data
/// that is used too early is wrong data. Defines the functions of the runtime that the library calls; a test that links
/// it needs no GPU.
///
/// As strict as the documentation allows: destroying a stream doesn't wait for its work, freeing memory waits for all
/// of it; an error stays until it is read; events, streams and launches have a device; queues may be finite.
namespace fake_cuda {

struct settings {
    int devices = 8;
    std::uint64_t seed = 1;
    /// Bytes of device memory, which all devices share.
    std::size_t memory = std::size_t{1} << 26U;
    /// The call of this name that comes as this one (counted from 1) fails with this error. What gives something back
    /// does so all the same, as it does where the error is that of earlier work.
    std::string failing_call{};
    std::size_t failing_number = 1;
    cudaError_t failure = cudaErrorUnknown;
    /// The copy of this kind that comes as this one (counted from 1; 0: none) takes so long, or until `release`.
    cudaMemcpyKind slow_kind = cudaMemcpyDefault;
    std::size_t slow_number = 0;
    std::chrono::milliseconds slow_for{};
    /// A call that waits for longer than this hangs: it gives up, and that is a complaint.
    std::chrono::milliseconds hang_after{10'000};
    /// The streams of a device share that many hardware queues, each of which runs its work in the order of its issue.
    /// 0: any number.
    std::size_t hardware_queues = 0;
    /// What a stream takes before a call that puts in more waits. 0: any number.
    std::size_t launch_queue = 0;
    /// What `cudaDevAttrHostNumaId` says.
    int numa_node = -1;
    /// Between two recorded events on the clock of the devices. 0: the time that really passes.
    std::chrono::nanoseconds tick{};
    /// Keeps what `races` looks at.
    bool log_accesses = false;
};

/// What exists and hasn't been given back.
struct census {
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t device_bytes = 0;
    std::size_t pinned_ranges = 0;
    std::size_t graphs = 0;
    std::size_t contexts = 0;

    friend bool operator==(const census&, const census&) = default;
};

/// Fresh devices. Nothing of earlier ones may be in use any more.
void reset(const settings& s = {});
census alive();
/// The names of all calls since the reset, in order.
std::vector<std::string> calls();
std::size_t count(const std::string& call);
/// What no program may do, but a device doesn't always notice: streams and events that are gone, events that were
/// never recorded, copies from or to memory that isn't there or isn't pinned, or between devices without peer access,
/// and calls that wait for ever.
std::vector<std::string> complaints();
void complain(std::string what);
/// Whether all of it was taken by cudaMalloc.
bool is_device_memory(const void* begin, std::size_t bytes);
/// The clock of the devices goes on by so much.
void advance_clock(std::chrono::nanoseconds by);
/// Lets copies that are held until then go on, and waits until nothing is under way.
void release();

/// What one piece of work on a device reads and writes.
struct range {
    const void* begin = nullptr;
    std::size_t bytes = 0;
};
struct accesses {
    std::string name;
    std::vector<range> reads;
    std::vector<range> writes;
};
/// What this thread puts into a stream next does this: for host functions, which play kernels.
void declare(accesses what);
/// Pairs of work, one of which writes what the other one reads or writes, that nothing orders: no stream, event,
/// message, nor a thread that waited for the one before it issued the other. Whatever order they happened in (vector
/// clocks; Mattern 1989). Needs `log_accesses`.
std::vector<std::string> races();

/// Work of another library. Both functions are called by the device's thread: `ready(number)` until it says yes, from
/// when it is the stream's turn, and must not call CUDA; then `run()`. `number` is that of the work in the log.
struct work {
    std::function<bool(std::size_t number)> ready;
    std::function<void()> run;
};
/// Puts it into a stream; `make` is called for it, once per launch if the stream is being captured. `keep` lives for as
/// long as the work, or the graph with it, does.
void enqueue(cudaStream_t stream, accesses what, std::function<work()> make, std::shared_ptr<void> keep);
/// Neither of two pieces of work is over before the other has begun. Callable from `ready`.
void meet(std::size_t one, std::size_t other);
/// Waits until nothing of a kind is left, or says that it hangs.
void wait_until(const std::string& call, const std::function<bool()>& over);
/// Something that a `ready` waits for may have changed.
void poke();
/// Whether a call fails as the settings say; counts it.
bool called(const char* name, cudaError_t& result);

} // namespace fake_cuda
