#include "cuda.hpp"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using clock_type = std::chrono::steady_clock;

struct work {
    std::function<bool()> ready;
    std::function<void()> run;
};
struct capture;
struct event_state {
    std::size_t recorded = 0;
    std::size_t done = 0;
    clock_type::time_point when{};
    std::shared_ptr<capture> captured_in{};
    std::size_t captured_at = 0;
};
struct stream_state {
    std::deque<work> queue;
    bool busy = false;
    std::shared_ptr<capture> capturing{};
    /// Captured nodes that the next one comes after.
    std::set<std::size_t> captured_front{};
};
/// Nodes in the order of their capture, each with those it comes after.
struct capture {
    struct node {
        std::set<std::size_t> after;
        std::function<void()> run;
    };
    std::vector<node> nodes;
    stream_state* origin = nullptr;
};

} // namespace

struct CUstream_st : stream_state {};
/// Outlives its event where a stream still waits for it.
struct CUevent_st {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
    bool has_times = true;
};
struct CUgraph_st : capture {};
struct CUgraphExec_st : capture {};

namespace {

class device {
public:
    device() : worker_{[this](const std::stop_token& stop) { work_off(stop); }} {}
    ~device() {
        worker_.request_stop();
        poke();
    }

    std::mutex mutex;
    fake_cuda::settings settings;
    fake_cuda::census alive;
    std::map<std::string_view, std::size_t> counts;
    std::vector<const char*> log;
    std::vector<std::string> complaints;
    std::set<stream_state*> streams;
    std::set<cudaEvent_t> events;
    std::map<const std::byte*, std::size_t> allocations;
    std::map<const std::byte*, std::size_t> pinned;
    std::map<cudaMemcpyKind, std::size_t> copies;

    void poke() {
        const std::scoped_lock lock{mutex};
        changed_.notify_all();
    }
    template <class Condition> void wait_until(std::unique_lock<std::mutex>& lock, Condition condition) {
        changed_.wait(lock, condition);
    }
    void notify() { changed_.notify_all(); }

private:
    void work_off(const std::stop_token& stop) {
        std::unique_lock lock{mutex};
        while (!stop.stop_requested()) {
            stream_state* chosen = choose();
            if (!chosen) {
                // `ready` may depend on what nobody tells us of.
                changed_.wait_for(lock, std::chrono::milliseconds{1});
                continue;
            }
            auto next = std::move(chosen->queue.front().run);
            chosen->queue.pop_front();
            chosen->busy = true;
            lock.unlock();
            next();
            lock.lock();
            chosen->busy = false;
            changed_.notify_all();
        }
    }
    stream_state* choose() {
        stream_state* chosen = nullptr;
        std::size_t able = 0;
        for (auto* s : streams)
            if (!s->queue.empty() && s->queue.front().ready() && random_() % ++able == 0) chosen = s;
        return chosen;
    }

    std::condition_variable changed_;
    std::mt19937_64 random_{settings.seed};
    std::jthread worker_;
};

device& gpu() {
    static device the_one;
    return the_one;
}

stream_state& state(cudaStream_t stream) { return *stream; }

void put(stream_state& s, std::function<bool()> ready, std::function<void()> run) {
    s.queue.push_back({std::move(ready), std::move(run)});
    gpu().notify();
}
/// Into the queue, or into the graph that the stream is being captured in.
void put_or_capture(stream_state& s, std::function<void()> run) {
    if (!s.capturing)
        return put(
            s, [] { return true; }, std::move(run));
    auto& nodes = s.capturing->nodes;
    nodes.push_back({std::exchange(s.captured_front, {nodes.size()}), std::move(run)});
}

int& current() {
    thread_local int device_number = 0;
    return device_number;
}

#define FAKE_CALL(name)                                                                                                \
    if (cudaError_t result = cudaSuccess; fake_cuda::called(name, result)) return result;                              \
    std::unique_lock lock { gpu().mutex }
/// For what gives something back: returns the error at the end, having done it.
#define FAKE_RELEASE(name)                                                                                             \
    cudaError_t result = cudaSuccess;                                                                                  \
    fake_cuda::called(name, result);                                                                                   \
    std::unique_lock lock { gpu().mutex }

// All of these with the mutex held.
bool lies_in(const std::map<const std::byte*, std::size_t>& ranges, const void* begin, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    auto range = ranges.upper_bound(first);
    if (range == ranges.begin()) return false;
    --range;
    return first + bytes <= range->first + range->second;
}
void complain(std::string what) { gpu().complaints.push_back(std::move(what)); }
bool is_there(cudaStream_t stream, const char* call) {
    if (gpu().streams.contains(stream)) return true;
    complain(std::string{call} + ": a stream that isn't there");
    return false;
}
bool is_there(cudaEvent_t event, const char* call) {
    if (gpu().events.contains(event)) return true;
    complain(std::string{call} + ": an event that isn't there");
    return false;
}
#define FAKE_EXPECT(handle, name)                                                                                      \
    if (!is_there(handle, name)) return cudaErrorInvalidResourceHandle

/// Says where a copy would go wrong: asked for when it is put into a stream, and again when it runs.
void check_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, const char* when) {
    if (bytes == 0) return;
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (!lies_in(to_device ? gpu().allocations : gpu().pinned, to, bytes))
        complain(std::string{"cudaMemcpyAsync, "} + when + ": to " +
                 (to_device ? "no device memory" : "memory that isn't pinned"));
    if (!lies_in(from_device ? gpu().allocations : gpu().pinned, from, bytes))
        complain(std::string{"cudaMemcpyAsync, "} + when + ": from " +
                 (from_device ? "no device memory" : "memory that isn't pinned"));
}

} // namespace

namespace fake_cuda {

void reset(const settings& s) {
    const std::scoped_lock lock{gpu().mutex};
    gpu().settings = s;
    gpu().alive = {};
    gpu().counts.clear();
    gpu().log.clear();
    gpu().complaints.clear();
    gpu().streams.clear();
    gpu().events.clear();
    gpu().allocations.clear();
    gpu().pinned.clear();
    gpu().copies.clear();
}
census alive() {
    const std::scoped_lock lock{gpu().mutex};
    auto result = gpu().alive;
    result.streams = gpu().streams.size();
    result.events = gpu().events.size();
    for (const auto& [begin, size] : gpu().allocations)
        result.device_bytes += size;
    result.pinned_ranges = gpu().pinned.size();
    return result;
}
std::vector<std::string> calls() {
    const std::scoped_lock lock{gpu().mutex};
    return {gpu().log.begin(), gpu().log.end()};
}
std::size_t count(const std::string& call) {
    const std::scoped_lock lock{gpu().mutex};
    return gpu().counts[call];
}
std::vector<std::string> complaints() {
    const std::scoped_lock lock{gpu().mutex};
    return gpu().complaints;
}
bool is_device_memory(const void* begin, std::size_t bytes) {
    const std::scoped_lock lock{gpu().mutex};
    return lies_in(gpu().allocations, begin, bytes);
}
void enqueue(cudaStream_t stream, std::function<bool()> ready, std::function<void()> run) {
    const std::scoped_lock lock{gpu().mutex};
    if (is_there(stream, "enqueue")) put(state(stream), std::move(ready), std::move(run));
}
void poke() { gpu().poke(); }
bool called(const char* name, cudaError_t& result) {
    const std::scoped_lock lock{gpu().mutex};
    gpu().log.emplace_back(name);
    const auto number = ++gpu().counts[name];
    if (gpu().settings.failing_call != name || gpu().settings.failing_number != number) return false;
    result = gpu().settings.failure;
    return true;
}

} // namespace fake_cuda

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t code) {
    return code == cudaErrorMemoryAllocation ? "out of memory" : "failed as the test wants it";
}
cudaError_t cudaGetDeviceCount(int* count) {
    FAKE_CALL("cudaGetDeviceCount");
    *count = gpu().settings.devices;
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDevice(int* number) {
    FAKE_CALL("cudaGetDevice");
    *number = current();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
    FAKE_CALL("cudaSetDevice");
    if (number >= gpu().settings.devices) return cudaErrorInvalidDevice;
    current() = number;
    return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) {
    FAKE_CALL("cudaInitDevice");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
    FAKE_CALL("cudaDeviceGetAttribute");
    *value = 2;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    FAKE_CALL("cudaDeviceGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    FAKE_CALL("cudaDeviceSynchronize");
    gpu().wait_until(lock, [] {
        return std::all_of(gpu().streams.begin(), gpu().streams.end(),
                           [](const stream_state* s) { return s->queue.empty() && !s->busy; });
    });
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    FAKE_CALL("cudaStreamCreateWithPriority");
    *stream = new CUstream_st{};
    gpu().streams.insert(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    FAKE_CALL("cudaStreamSynchronize");
    FAKE_EXPECT(stream, "cudaStreamSynchronize");
    gpu().wait_until(lock, [&] { return state(stream).queue.empty() && !state(stream).busy; });
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    FAKE_CALL("cudaStreamQuery");
    FAKE_EXPECT(stream, "cudaStreamQuery");
    return state(stream).queue.empty() && !state(stream).busy ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    FAKE_RELEASE("cudaStreamDestroy");
    FAKE_EXPECT(stream, "cudaStreamDestroy");
    // Work that is still in it is finished first.
    gpu().wait_until(lock, [&] { return state(stream).queue.empty() && !state(stream).busy; });
    gpu().streams.erase(stream);
    delete stream;
    return result;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    FAKE_CALL("cudaEventCreateWithFlags");
    *event = new CUevent_st{};
    (*event)->has_times = (flags & cudaEventDisableTiming) == 0;
    gpu().events.insert(*event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    FAKE_RELEASE("cudaEventDestroy");
    FAKE_EXPECT(event, "cudaEventDestroy");
    gpu().events.erase(event);
    delete event;
    return result;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    FAKE_CALL("cudaEventRecord");
    FAKE_EXPECT(handle, "cudaEventRecord");
    FAKE_EXPECT(stream, "cudaEventRecord");
    const auto event = handle->state;
    auto& s = state(stream);
    if (s.capturing) {
        event->captured_in = s.capturing;
        put_or_capture(s, [] {});
        event->captured_at = s.capturing->nodes.size() - 1;
        return cudaSuccess;
    }
    event->captured_in = nullptr;
    const auto number = ++event->recorded;
    put(
        s, [] { return true; },
        [event, number] {
            const std::scoped_lock inner{gpu().mutex};
            event->done = std::max(event->done, number);
            event->when = clock_type::now();
            gpu().notify();
        });
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
    FAKE_CALL("cudaStreamWaitEvent");
    FAKE_EXPECT(handle, "cudaStreamWaitEvent");
    FAKE_EXPECT(stream, "cudaStreamWaitEvent");
    const auto event = handle->state;
    auto& s = state(stream);
    if (event->captured_in) {
        if (s.capturing && s.capturing != event->captured_in) return cudaErrorStreamCaptureMerge;
        s.capturing = event->captured_in;
        s.captured_front.insert(event->captured_at);
        return cudaSuccess;
    }
    if (s.capturing) return cudaErrorStreamCaptureIsolation;
    if (event->recorded == 0) complain("cudaStreamWaitEvent: an event that was never recorded");
    const auto number = event->recorded;
    put(
        s, [event, number] { return event->done >= number; }, [] {});
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
    FAKE_CALL("cudaEventQuery");
    FAKE_EXPECT(handle, "cudaEventQuery");
    const auto& event = handle->state;
    return event->done >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    FAKE_CALL("cudaEventSynchronize");
    FAKE_EXPECT(handle, "cudaEventSynchronize");
    gpu().wait_until(lock, [event = handle->state] { return event->done >= event->recorded; });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    FAKE_CALL("cudaEventElapsedTime");
    FAKE_EXPECT(last, "cudaEventElapsedTime");
    FAKE_EXPECT(first, "cudaEventElapsedTime");
    if (!first->has_times || !last->has_times) return cudaErrorInvalidResourceHandle;
    const auto& from = first->state;
    const auto& to = last->state;
    if (from->done < from->recorded || to->done < to->recorded) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** begin, std::size_t bytes) {
    FAKE_CALL("cudaMalloc");
    std::size_t taken = bytes;
    for (const auto& [other, size] : gpu().allocations)
        taken += size;
    if (taken > gpu().settings.memory) return cudaErrorMemoryAllocation;
    *begin = std::malloc(bytes);
    gpu().allocations[static_cast<std::byte*>(*begin)] = bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void* begin) {
    FAKE_RELEASE("cudaFree");
    if (gpu().allocations.erase(static_cast<std::byte*>(begin)) == 0) return cudaErrorInvalidValue;
    std::free(begin);
    return result;
}
cudaError_t cudaHostRegister(void* begin, std::size_t bytes, unsigned) {
    FAKE_CALL("cudaHostRegister");
    gpu().pinned[static_cast<std::byte*>(begin)] = bytes;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* begin) {
    FAKE_RELEASE("cudaHostUnregister");
    return gpu().pinned.erase(static_cast<std::byte*>(begin)) == 0 ? cudaErrorInvalidValue : result;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    FAKE_CALL("cudaMemcpyAsync");
    FAKE_EXPECT(stream, "cudaMemcpyAsync");
    check_copy(to, from, bytes, kind, "issued");
    const auto& how = gpu().settings;
    if (kind == how.slow_kind && ++gpu().copies[kind] == how.slow_number)
        put(
            state(stream), [until = clock_type::now() + how.slow_for] { return clock_type::now() >= until; }, [] {});
    put_or_capture(state(stream), [=] {
        {
            const std::scoped_lock inner{gpu().mutex};
            check_copy(to, from, bytes, kind, "run");
        }
        std::memcpy(to, from, bytes);
    });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    FAKE_CALL("cudaMemsetAsync");
    FAKE_EXPECT(stream, "cudaMemsetAsync");
    put_or_capture(state(stream), [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    FAKE_CALL("cudaLaunchHostFunc");
    FAKE_EXPECT(stream, "cudaLaunchHostFunc");
    put_or_capture(state(stream), [=] { function(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    FAKE_CALL("cudaStreamBeginCapture");
    FAKE_EXPECT(stream, "cudaStreamBeginCapture");
    if (state(stream).capturing) return cudaErrorIllegalState;
    state(stream).capturing = std::make_shared<capture>();
    state(stream).capturing->origin = &state(stream);
    state(stream).captured_front.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    FAKE_CALL("cudaStreamEndCapture");
    FAKE_EXPECT(stream, "cudaStreamEndCapture");
    *graph = nullptr;
    const auto captured = state(stream).capturing;
    if (!captured) return cudaErrorIllegalState;
    // Every node has to be before the last of the origin.
    std::set<std::size_t> reached = state(stream).captured_front;
    for (std::size_t i = captured->nodes.size(); i-- > 0;)
        if (reached.contains(i)) reached.insert(captured->nodes[i].after.begin(), captured->nodes[i].after.end());
    for (auto* s : gpu().streams)
        if (s->capturing == captured) {
            s->capturing = nullptr;
            s->captured_front.clear();
        }
    if (reached.size() != captured->nodes.size()) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{*captured};
    ++gpu().alive.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    FAKE_RELEASE("cudaGraphDestroy");
    --gpu().alive.graphs;
    delete graph;
    return result;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    FAKE_CALL("cudaGraphInstantiate");
    *executable = new CUgraphExec_st{*graph};
    ++gpu().alive.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    FAKE_RELEASE("cudaGraphExecDestroy");
    --gpu().alive.graphs;
    delete executable;
    return result;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    FAKE_CALL("cudaGraphLaunch");
    FAKE_EXPECT(stream, "cudaGraphLaunch");
    // In some order that the edges allow.
    put(
        state(stream), [] { return true; },
        [nodes = executable->nodes, seed = gpu().settings.seed] {
            std::mt19937_64 random{seed};
            std::vector<bool> done(nodes.size());
            for (std::size_t finished = 0; finished < nodes.size(); ++finished) {
                std::vector<std::size_t> able;
                for (std::size_t i = 0; i < nodes.size(); ++i)
                    if (!done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                                [&](std::size_t before) { return done[before]; }))
                        able.push_back(i);
                const auto chosen = able[random() % able.size()];
                nodes[chosen].run();
                done[chosen] = true;
            }
        });
    return cudaSuccess;
}

} // extern "C"

// Green contexts, which the library looks up by name.
namespace {

CUresult fake_device_resource(CUdevice, CUdevResource* resource, CUdevResourceType) {
    *resource = {};
    resource->sm.smCount = 132;
    return CUDA_SUCCESS;
}
CUresult fake_split(CUdevResource* parts, unsigned* count, const CUdevResource* whole, CUdevResource*, unsigned,
                    unsigned least) {
    const unsigned size = (least + 7) / 8 * 8;
    *count = std::min(*count, whole->sm.smCount / size);
    for (unsigned i = 0; i < *count; ++i)
        parts[i].sm.smCount = size;
    return CUDA_SUCCESS;
}
CUresult fake_describe(CUdevResourceDesc*, CUdevResource*, unsigned) { return CUDA_SUCCESS; }
CUresult fake_create(CUgreenCtx* context, CUdevResourceDesc, CUdevice, unsigned) {
    const std::scoped_lock lock{gpu().mutex};
    *context = reinterpret_cast<CUgreenCtx>(++gpu().alive.contexts);
    return CUDA_SUCCESS;
}
CUresult fake_destroy(CUgreenCtx) {
    const std::scoped_lock lock{gpu().mutex};
    --gpu().alive.contexts;
    return CUDA_SUCCESS;
}
CUresult fake_stream(CUstream* stream, CUgreenCtx, unsigned flags, int priority) {
    return static_cast<CUresult>(cudaStreamCreateWithPriority(stream, flags, priority));
}

} // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* known) {
    FAKE_CALL("cudaGetDriverEntryPointByVersion");
    const std::map<std::string, void*> functions{
        {"cuDeviceGetDevResource", reinterpret_cast<void*>(&fake_device_resource)},
        {"cuDevSmResourceSplitByCount", reinterpret_cast<void*>(&fake_split)},
        {"cuDevResourceGenerateDesc", reinterpret_cast<void*>(&fake_describe)},
        {"cuGreenCtxCreate", reinterpret_cast<void*>(&fake_create)},
        {"cuGreenCtxDestroy", reinterpret_cast<void*>(&fake_destroy)},
        {"cuGreenCtxStreamCreate", reinterpret_cast<void*>(&fake_stream)}};
    const auto found = functions.find(name);
    *known = found == functions.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    *function = found == functions.end() ? nullptr : found->second;
    return cudaSuccess;
}
