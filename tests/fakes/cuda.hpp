#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Stands in for the CUDA runtime in tests: a device whose streams are queues, worked off by one thread that picks a
/// stream at random among those that can go on. So what a program doesn't make wait may happen in any order, and data
/// that is used too early is wrong data. Defines the functions of the runtime that the library calls; a test that links
/// it needs no GPU.
namespace fake_cuda {

struct settings {
    int devices = 1;
    std::uint64_t seed = 1;
    /// Bytes of device memory.
    std::size_t memory = std::size_t{1} << 26U;
    /// The call of this name that comes as this one (counted from 1) fails with this error. What gives something back
    /// does so all the same, as it does where the error is that of earlier work.
    std::string failing_call{};
    std::size_t failing_number = 1;
    cudaError_t failure = cudaErrorUnknown;
    /// The copy of this kind that comes as this one (counted from 1; 0: none) takes so long.
    cudaMemcpyKind slow_kind = cudaMemcpyDefault;
    std::size_t slow_number = 0;
    std::chrono::milliseconds slow_for{};
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

/// A fresh device. Nothing of an earlier one may be in use any more.
void reset(const settings& s = {});
census alive();
/// The names of all calls since the reset, in order.
std::vector<std::string> calls();
std::size_t count(const std::string& call);
/// What no program may do, but a device doesn't always notice: streams and events that are gone, events that were
/// never recorded, copies from or to memory that isn't there or isn't pinned.
std::vector<std::string> complaints();
/// Whether all of it was taken by cudaMalloc.
bool is_device_memory(const void* begin, std::size_t bytes);

/// Puts work of any kind into a stream. `ready` is asked until it says yes; then `run` is called. Both on the device's
/// thread; `ready` must not call CUDA.
void enqueue(cudaStream_t stream, std::function<bool()> ready, std::function<void()> run);
/// Something that a `ready` waits for may have changed.
void poke();
/// Whether a call fails as the settings say; counts it.
bool called(const char* name, cudaError_t& result);

} // namespace fake_cuda
