#include "cuda.hpp"

#include "race_log.hpp"

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
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
using std::chrono::nanoseconds;

struct item {
    std::function<bool()> ready;
    std::function<void()> run;
    /// Number in the order of issue.
    std::uint64_t sequence = 0;
};
struct capture;
struct event_state {
    int device = 0;
    std::size_t recorded = 0;
    std::size_t done = 0;
    nanoseconds when{};
    /// Node in the log.
    std::size_t last_record = race_log::none;
    std::shared_ptr<capture> captured_in{};
    std::size_t captured_at = 0;
};
/// Outlives its stream while it has work.
struct stream_state {
    static constexpr std::size_t no_queue = static_cast<std::size_t>(-1);

    int device = 0;
    std::size_t hardware_queue = no_queue;
    std::size_t chain = race_log::none;
    std::deque<item> queue{};
    bool busy = false;
    std::shared_ptr<capture> capturing{};
    /// Captured nodes that the next node follows.
    std::set<std::size_t> captured_front{};

    [[nodiscard]] bool idle() const { return queue.empty() && !busy; }
};
/// Nodes in the order of their capture, each with its predecessors.
struct capture {
    struct node {
        std::set<std::size_t> after;
        const stream_state* from = nullptr;
        int device = 0;
        fake_cuda::accesses uses;
        std::function<fake_cuda::work()> make;
    };
    std::vector<node> nodes;
    std::vector<std::shared_ptr<void>> kept;
};
/// A graph that was launched.
struct launched {
    struct node {
        std::weak_ptr<stream_state> held;
        /// Number of nodes that must run before it.
        std::size_t open = 0;
        std::vector<std::size_t> followers{};
    };
    std::vector<node> nodes;
    std::size_t left = 0;
    std::vector<std::shared_ptr<void>> kept;
};

} // namespace

struct CUstream_st {
    std::shared_ptr<stream_state> state;
};
/// Outlives its event while a stream waits for it.
struct CUevent_st {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
    bool has_times = true;
};
struct CUgraph_st : capture {};
struct CUgraphExec_st : capture {
    /// Chains in the log, by the stream from which a node was captured.
    std::map<const stream_state*, std::size_t> chains{};
};

namespace {

struct allocation {
    std::size_t bytes = 0;
    int device = 0;
    /// Distinguishes it from an earlier one at the same address.
    std::size_t number = 0;
};
using allocations = std::map<const std::byte*, allocation>;

class platform {
public:
    platform() : worker_{[this](const std::stop_token& stop) { work_off(stop); }} {}
    ~platform() {
        worker_.request_stop();
        poke();
    }

    std::mutex mutex;
    fake_cuda::settings settings;
    fake_cuda::census alive;
    std::map<std::string_view, std::size_t> counts;
    std::vector<const char*> calls;
    std::vector<std::string> complaints;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    allocations device_memory;
    allocations pinned;
    std::size_t allocated = 0;
    std::set<std::pair<int, int>> peers;
    std::map<cudaMemcpyKind, std::size_t> copies;
    bool is_released = false;
    nanoseconds clock_offset{};
    race_log log;
    /// Places in the log: the chain of each thread, and the last node of each other chain that the thread has seen to
    /// be over.
    std::map<std::thread::id, std::size_t> threads;
    std::map<std::pair<std::thread::id, std::size_t>, std::size_t> seen;

    void reset(const fake_cuda::settings& s) {
        settings = s;
        alive = {};
        counts.clear();
        calls.clear();
        complaints.clear();
        streams.clear();
        events.clear();
        device_memory.clear();
        pinned.clear();
        peers.clear();
        copies.clear();
        is_released = false;
        clock_offset = {};
        log = {};
        threads.clear();
        seen.clear();
        working_.clear();
        held_.clear();
        made_ = issued_ = 0;
        random_.seed(s.seed);
    }
    std::shared_ptr<stream_state> make_stream(int device) {
        auto s = std::make_shared<stream_state>();
        s->device = device;
        if (settings.hardware_queues > 0) s->hardware_queue = made_++ % settings.hardware_queues;
        return s;
    }
    void put(std::unique_lock<std::mutex>& lock, const std::shared_ptr<stream_state>& s, item next) {
        if (settings.launch_queue > 0) wait(lock, "a launch", [&] { return s->queue.size() < settings.launch_queue; });
        next.sequence = issued_++;
        s->queue.push_back(std::move(next));
        if (std::find(working_.begin(), working_.end(), s) == working_.end()) working_.push_back(s);
        work_added_.notify_one();
    }
    /// Adds an item to a separate stream; until it is released, nobody queries whether it is ready.
    void hold(const std::shared_ptr<stream_state>& s, item next) {
        s->queue.push_back(std::move(next));
        held_.insert(s);
    }
    void release(const std::weak_ptr<stream_state>& held) {
        const auto s = held.lock();
        if (s && held_.erase(s) > 0) working_.push_back(s);
    }
    [[nodiscard]] nanoseconds now() {
        if (settings.tick > nanoseconds{}) clock_offset += settings.tick;
        const auto passed = settings.tick > nanoseconds{} ? nanoseconds{} : clock_type::now().time_since_epoch();
        return passed + clock_offset;
    }
    [[nodiscard]] bool is_idle() const {
        return held_.empty() && std::all_of(working_.begin(), working_.end(), [](const auto& s) { return s->idle(); });
    }
    [[nodiscard]] bool is_idle(int device) const {
        const auto is_over = [&](const auto& s) { return s->device != device || s->idle(); };
        return std::all_of(working_.begin(), working_.end(), is_over) &&
               std::all_of(held_.begin(), held_.end(), is_over);
    }
    void poke() {
        const std::scoped_lock lock{mutex};
        notify();
    }
    void notify() {
        work_added_.notify_one();
        work_done_.notify_all();
    }
    /// False if it hangs, which is a complaint.
    template <class Condition>
    bool wait(std::unique_lock<std::mutex>& lock, const std::string& call, const Condition& over) {
        const auto deadline = clock_type::now() + settings.hang_after;
        while (!over()) {
            if (clock_type::now() >= deadline) {
                complaints.push_back(call + ": hangs");
                return false;
            }
            // Its condition may become true without a notification.
            work_done_.wait_for(lock, std::chrono::milliseconds{1});
        }
        return true;
    }

private:
    void work_off(const std::stop_token& stop) {
        std::unique_lock lock{mutex};
        while (!stop.stop_requested()) {
            const auto chosen = choose();
            if (!chosen) {
                work_added_.wait_for(lock, std::chrono::milliseconds{1});
                continue;
            }
            auto next = std::move(chosen->queue.front());
            chosen->queue.pop_front();
            chosen->busy = true;
            lock.unlock();
            next.run();
            next = {}; // including the objects that it kept
            lock.lock();
            chosen->busy = false;
            work_done_.notify_all();
        }
    }
    /// A hardware queue runs its oldest work first.
    [[nodiscard]] bool is_first(const stream_state& s) const {
        if (s.hardware_queue == stream_state::no_queue) return true;
        return std::all_of(working_.begin(), working_.end(), [&](const auto& other) {
            return other->device != s.device || other->hardware_queue != s.hardware_queue || other->queue.empty() ||
                   other->queue.front().sequence >= s.queue.front().sequence;
        });
    }
    std::shared_ptr<stream_state> choose() {
        working_.erase(std::remove_if(working_.begin(), working_.end(), [](const auto& s) { return s->idle(); }),
                       working_.end());
        std::shared_ptr<stream_state> chosen;
        std::size_t able = 0;
        for (const auto& s : working_)
            if (!s->queue.empty() && is_first(*s) && s->queue.front().ready() && random_() % ++able == 0) chosen = s;
        return chosen;
    }

    /// The worker waits for the first, other threads for the second.
    std::condition_variable work_added_, work_done_;
    std::mt19937_64 random_{settings.seed};
    /// Streams that have work.
    std::vector<std::shared_ptr<stream_state>> working_;
    std::set<std::shared_ptr<stream_state>> held_;
    std::size_t made_ = 0;
    std::uint64_t issued_ = 0;
    std::jthread worker_;
};

platform& gpu() {
    static platform the_one;
    return the_one;
}

int& current() {
    thread_local int device_number = 0;
    return device_number;
}
/// The thread's last error, until it is read.
cudaError_t& last_error() {
    thread_local cudaError_t error = cudaSuccess;
    return error;
}
cudaError_t failed(cudaError_t error) {
    if (error != cudaSuccess) last_error() = error;
    return error;
}
fake_cuda::accesses& declared() {
    thread_local fake_cuda::accesses next;
    return next;
}

#define FAKE_CALL(name)                                                                                                \
    if (cudaError_t result = cudaSuccess; fake_cuda::called(name, result)) return failed(result);                      \
    std::unique_lock lock { gpu().mutex }
/// Begins a release function: it releases, and returns the error at the end.
#define FAKE_RELEASE(name)                                                                                             \
    cudaError_t result = cudaSuccess;                                                                                  \
    fake_cuda::called(name, result);                                                                                   \
    std::unique_lock lock { gpu().mutex }

// The functions below are called with the mutex held.

/// The allocation that contains the whole range.
allocations::const_iterator find(const allocations& ranges, const void* begin, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    auto range = ranges.upper_bound(first);
    if (range == ranges.begin()) return ranges.end();
    --range;
    return first + bytes <= range->first + range->second.bytes ? range : ranges.end();
}
bool lies_in(const allocations& ranges, const void* begin, std::size_t bytes) {
    return find(ranges, begin, bytes) != ranges.end();
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
    if (!is_there(handle, name)) return failed(cudaErrorInvalidResourceHandle)

std::vector<race_log::access> in_log(const fake_cuda::accesses& what) {
    std::vector<race_log::access> all;
    const auto add = [&](const fake_cuda::range& r, bool writes) {
        std::size_t number = 0;
        for (const auto* memory : {&gpu().device_memory, &gpu().pinned})
            if (const auto in = find(*memory, r.begin, r.bytes); in != memory->end()) number = in->second.number;
        const auto begin = reinterpret_cast<std::uintptr_t>(r.begin);
        all.push_back({number, begin, begin + r.bytes, writes});
    };
    for (const auto& r : what.reads)
        add(r, false);
    for (const auto& r : what.writes)
        add(r, true);
    return all;
}
std::size_t chain_of(std::size_t& chain) {
    if (chain == race_log::none) chain = gpu().log.add_chain();
    return chain;
}
/// The work that this thread has seen to be over.
std::size_t seen_by_thread() {
    const auto mine = gpu().threads.find(std::this_thread::get_id());
    return mine == gpu().threads.end() ? race_log::none : gpu().log.last_of(mine->second);
}
/// Records that this thread has seen a chain to be over up to a node.
void see(std::size_t chain, std::size_t node) {
    if (!gpu().settings.log_accesses || node == race_log::none) return;
    const auto me = std::this_thread::get_id();
    auto& before = gpu().seen.try_emplace({me, chain}, race_log::none).first->second;
    if (std::exchange(before, node) == node) return;
    const auto [mine, is_new] = gpu().threads.try_emplace(me, race_log::none);
    gpu().log.add(chain_of(mine->second), "the host", {}, {node});
}
void see(const stream_state& s) {
    if (s.chain != race_log::none) see(s.chain, gpu().log.last_of(s.chain));
}
std::size_t write_log(stream_state& s, const fake_cuda::accesses& what, std::vector<std::size_t> after = {}) {
    if (!gpu().settings.log_accesses) return race_log::none;
    after.push_back(seen_by_thread());
    return gpu().log.add(chain_of(s.chain), what.name, in_log(what), std::move(after));
}

/// Puts work into the queue, or into the graph that is being captured from the stream.
void submit(std::unique_lock<std::mutex>& lock, const std::shared_ptr<stream_state>& s, const fake_cuda::accesses& what,
            const std::function<fake_cuda::work()>& make, const std::shared_ptr<void>& keep = {}) {
    if (s->capturing) {
        auto& nodes = s->capturing->nodes;
        nodes.push_back({std::exchange(s->captured_front, {nodes.size()}), s.get(), s->device, what, make});
        if (keep) s->capturing->kept.push_back(keep);
        return;
    }
    const auto number = write_log(*s, what);
    const auto made = make();
    gpu().put(lock, s,
              {[ready = made.ready, number] { return !ready || ready(number); },
               [run = made.run, keep] {
                   if (run) run();
               }});
}
void submit_call(std::unique_lock<std::mutex>& lock, const std::shared_ptr<stream_state>& s,
                 const fake_cuda::accesses& what, const std::function<void()>& run) {
    submit(lock, s, what, [run] { return fake_cuda::work{{}, run}; });
}

/// The reason why a copy is invalid. Checked when it is put into a stream, and again when it runs.
std::string trouble_of_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return "";
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    const auto& device = gpu().device_memory;
    const auto& pinned = gpu().pinned;
    if (!lies_in(to_device ? device : pinned, to, bytes))
        return to_device ? "to no device memory" : "to memory that isn't pinned";
    if (!lies_in(from_device ? device : pinned, from, bytes))
        return from_device ? "from no device memory" : "from memory that isn't pinned";
    if (to_device && from_device) {
        const auto target = find(device, to, bytes)->second.device;
        const auto source = find(device, from, bytes)->second.device;
        if (target != source && !gpu().peers.contains({target, source})) return "between devices without peer access";
    }
    return "";
}
/// Whether the range begins in one registration and ends in another, or in none.
bool crosses_registration(const void* begin, std::size_t bytes) {
    return lies_in(gpu().pinned, begin, 1) && !lies_in(gpu().pinned, begin, bytes);
}

} // namespace

namespace fake_cuda {

void reset(const settings& s) {
    const std::scoped_lock lock{gpu().mutex};
    gpu().reset(s);
    last_error() = cudaSuccess;
    declared() = {};
}
census alive() {
    const std::scoped_lock lock{gpu().mutex};
    auto result = gpu().alive;
    result.streams = gpu().streams.size();
    result.events = gpu().events.size();
    for (const auto& [begin, range] : gpu().device_memory)
        result.device_bytes += range.bytes;
    result.pinned_ranges = gpu().pinned.size();
    return result;
}
std::vector<std::string> calls() {
    const std::scoped_lock lock{gpu().mutex};
    return {gpu().calls.begin(), gpu().calls.end()};
}
std::size_t count(const std::string& call) {
    const std::scoped_lock lock{gpu().mutex};
    return gpu().counts[call];
}
std::vector<std::string> complaints() {
    const std::scoped_lock lock{gpu().mutex};
    return gpu().complaints;
}
void complain(std::string what) {
    const std::scoped_lock lock{gpu().mutex};
    ::complain(std::move(what));
}
bool is_device_memory(const void* begin, std::size_t bytes) {
    const std::scoped_lock lock{gpu().mutex};
    return lies_in(gpu().device_memory, begin, bytes);
}
void advance_clock(std::chrono::nanoseconds by) {
    const std::scoped_lock lock{gpu().mutex};
    gpu().clock_offset += by;
}
void release() {
    std::unique_lock lock{gpu().mutex};
    gpu().is_released = true;
    gpu().notify();
    gpu().wait(lock, "release", [] { return gpu().is_idle(); });
}
void declare(accesses what) { declared() = std::move(what); }
std::vector<std::string> races() {
    const std::scoped_lock lock{gpu().mutex};
    return gpu().log.races();
}
void enqueue(cudaStream_t stream, accesses what, std::function<work()> make, std::shared_ptr<void> keep) {
    std::unique_lock lock{gpu().mutex};
    if (is_there(stream, "enqueue")) submit(lock, stream->state, what, make, keep);
}
void meet(std::size_t one, std::size_t other) {
    if (one != race_log::none && other != race_log::none) gpu().log.meet(one, other);
}
void wait_until(const std::string& call, const std::function<bool()>& over) {
    std::unique_lock lock{gpu().mutex};
    gpu().wait(lock, call, over);
}
void poke() { gpu().poke(); }
bool called(const char* name, cudaError_t& result) {
    const std::scoped_lock lock{gpu().mutex};
    gpu().calls.emplace_back(name);
    const auto number = ++gpu().counts[name];
    if (gpu().settings.failing_call != name || gpu().settings.failing_number != number) return false;
    result = gpu().settings.failure;
    return true;
}

} // namespace fake_cuda

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error(); }
const char* cudaGetErrorString(cudaError_t code) {
    switch (code) {
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    default: return "failed as the test wants it";
    }
}
cudaError_t cudaGetDeviceCount(int* count) {
    FAKE_CALL("cudaGetDeviceCount");
    *count = gpu().settings.devices;
    return failed(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* number) {
    FAKE_CALL("cudaGetDevice");
    *number = current();
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) {
    FAKE_CALL("cudaSetDevice");
    if (number >= gpu().settings.devices) return failed(cudaErrorInvalidDevice);
    current() = number;
    return cudaSuccess;
}
cudaError_t cudaInitDevice(int, unsigned, unsigned) {
    FAKE_CALL("cudaInitDevice");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    FAKE_CALL("cudaDeviceGetAttribute");
    *value = which == cudaDevAttrHostNumaId ? gpu().settings.numa_node : 2;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    FAKE_CALL("cudaDeviceCanAccessPeer");
    *can = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    FAKE_CALL("cudaDeviceEnablePeerAccess");
    if (peer == current() || peer >= gpu().settings.devices) return failed(cudaErrorInvalidDevice);
    const bool is_new = gpu().peers.insert({current(), peer}).second;
    return failed(is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    FAKE_CALL("cudaDeviceGetStreamPriorityRange");
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
    FAKE_CALL("cudaDeviceSynchronize");
    const auto device = current();
    if (!gpu().wait(lock, "cudaDeviceSynchronize", [&] { return gpu().is_idle(device); }))
        return failed(cudaErrorLaunchTimeout);
    for (const auto* s : gpu().streams)
        if (s->state->device == device) see(*s->state);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
    FAKE_CALL("cudaStreamCreateWithPriority");
    *stream = new CUstream_st{gpu().make_stream(current())};
    gpu().streams.insert(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    FAKE_CALL("cudaStreamSynchronize");
    FAKE_EXPECT(stream, "cudaStreamSynchronize");
    const auto s = stream->state;
    if (!gpu().wait(lock, "cudaStreamSynchronize", [&] { return s->idle(); })) return failed(cudaErrorLaunchTimeout);
    see(*s);
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    FAKE_CALL("cudaStreamQuery");
    FAKE_EXPECT(stream, "cudaStreamQuery");
    if (stream->state->capturing) return failed(cudaErrorStreamCaptureUnsupported);
    if (!stream->state->idle()) return failed(cudaErrorNotReady);
    see(*stream->state);
    return cudaSuccess;
}
/// Returns at once; the work in the stream continues.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    FAKE_RELEASE("cudaStreamDestroy");
    FAKE_EXPECT(stream, "cudaStreamDestroy");
    gpu().streams.erase(stream);
    delete stream;
    return failed(result);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    FAKE_CALL("cudaEventCreateWithFlags");
    *event = new CUevent_st{};
    (*event)->has_times = (flags & cudaEventDisableTiming) == 0;
    (*event)->state->device = current();
    gpu().events.insert(*event);
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    FAKE_RELEASE("cudaEventDestroy");
    FAKE_EXPECT(event, "cudaEventDestroy");
    gpu().events.erase(event);
    delete event;
    return failed(result);
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    FAKE_CALL("cudaEventRecord");
    FAKE_EXPECT(handle, "cudaEventRecord");
    FAKE_EXPECT(stream, "cudaEventRecord");
    const auto event = handle->state;
    const auto s = stream->state;
    if (event->device != s->device) {
        complain("cudaEventRecord: an event and a stream of two devices");
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (s->capturing) {
        event->captured_in = s->capturing;
        submit_call(lock, s, {}, {});
        event->captured_at = s->capturing->nodes.size() - 1;
        return cudaSuccess;
    }
    event->captured_in = nullptr;
    const auto number = ++event->recorded;
    event->last_record = write_log(*s, {});
    gpu().put(lock, s,
              {[] { return true; },
               [event, number] {
                   const std::scoped_lock inner{gpu().mutex};
                   event->done = std::max(event->done, number);
                   event->when = gpu().now();
                   gpu().notify();
               }});
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
    FAKE_CALL("cudaStreamWaitEvent");
    FAKE_EXPECT(handle, "cudaStreamWaitEvent");
    FAKE_EXPECT(stream, "cudaStreamWaitEvent");
    const auto event = handle->state;
    const auto s = stream->state;
    if (event->captured_in) {
        if (s->capturing && s->capturing != event->captured_in) return failed(cudaErrorStreamCaptureMerge);
        s->capturing = event->captured_in;
        s->captured_front.insert(event->captured_at);
        return cudaSuccess;
    }
    if (s->capturing) return failed(cudaErrorStreamCaptureIsolation);
    if (event->recorded == 0) complain("cudaStreamWaitEvent: an event that was never recorded");
    const auto number = event->recorded;
    write_log(*s, {}, {event->last_record});
    gpu().put(lock, s, {[event, number] { return event->done >= number; }, [] {}});
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
    FAKE_CALL("cudaEventQuery");
    FAKE_EXPECT(handle, "cudaEventQuery");
    const auto& event = handle->state;
    if (event->captured_in) return failed(cudaErrorCapturedEvent);
    if (event->done < event->recorded) return failed(cudaErrorNotReady);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    FAKE_CALL("cudaEventSynchronize");
    FAKE_EXPECT(handle, "cudaEventSynchronize");
    const auto event = handle->state;
    gpu().wait(lock, "cudaEventSynchronize", [&] { return event->done >= event->recorded; });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t first, cudaEvent_t last) {
    FAKE_CALL("cudaEventElapsedTime");
    FAKE_EXPECT(last, "cudaEventElapsedTime");
    FAKE_EXPECT(first, "cudaEventElapsedTime");
    const auto& from = first->state;
    const auto& to = last->state;
    if (!first->has_times || !last->has_times || from->device != to->device)
        return failed(cudaErrorInvalidResourceHandle);
    if (from->done < from->recorded || to->done < to->recorded) return failed(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return cudaSuccess;
}

cudaError_t cudaMalloc(void** begin, std::size_t bytes) {
    FAKE_CALL("cudaMalloc");
    std::size_t taken = bytes;
    for (const auto& [other, range] : gpu().device_memory)
        taken += range.bytes;
    if (taken > gpu().settings.memory) return failed(cudaErrorMemoryAllocation);
    constexpr std::size_t granularity = 256; // guaranteed by CUDA
    *begin = std::aligned_alloc(granularity, (bytes + granularity - 1) / granularity * granularity);
    gpu().device_memory[static_cast<std::byte*>(*begin)] = {bytes, current(), ++gpu().allocated};
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    FAKE_CALL("cudaMemGetInfo");
    *free = *total = gpu().settings.memory;
    for (const auto& [begin, range] : gpu().device_memory)
        *free -= range.bytes;
    return cudaSuccess;
}
/// Waits for all work on the device.
cudaError_t cudaFree(void* begin) {
    FAKE_RELEASE("cudaFree");
    const auto freed = gpu().device_memory.find(static_cast<std::byte*>(begin));
    if (freed == gpu().device_memory.end()) return failed(cudaErrorInvalidValue);
    const auto device = freed->second.device;
    gpu().wait(lock, "cudaFree", [&] { return gpu().is_idle(device); });
    gpu().device_memory.erase(static_cast<std::byte*>(begin));
    std::free(begin);
    return failed(result);
}
cudaError_t cudaHostRegister(void* begin, std::size_t bytes, unsigned) {
    FAKE_CALL("cudaHostRegister");
    gpu().pinned[static_cast<std::byte*>(begin)] = {bytes, 0, ++gpu().allocated};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* begin) {
    FAKE_RELEASE("cudaHostUnregister");
    const bool is_there = gpu().pinned.erase(static_cast<std::byte*>(begin)) > 0;
    return failed(is_there ? result : cudaErrorInvalidValue);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    FAKE_CALL("cudaMemcpyAsync");
    FAKE_EXPECT(stream, "cudaMemcpyAsync");
    if (crosses_registration(to, bytes) || crosses_registration(from, bytes)) return failed(cudaErrorInvalidValue);
    const auto trouble = trouble_of_copy(to, from, bytes, kind);
    if (!trouble.empty()) complain("cudaMemcpyAsync, issued: " + trouble);
    const auto& how = gpu().settings;
    if (kind == how.slow_kind && ++gpu().copies[kind] == how.slow_number)
        gpu().put(
            lock, stream->state,
            {[until = clock_type::now() + how.slow_for] { return gpu().is_released || clock_type::now() >= until; },
             [] {}});
    submit_call(lock, stream->state, {"a copy", {{from, bytes}}, {{to, bytes}}}, [=] {
        const std::scoped_lock inner{gpu().mutex}; // so that the memory isn't freed during the copy
        const auto now = trouble_of_copy(to, from, bytes, kind);
        if (!now.empty()) complain("cudaMemcpyAsync, run: " + now);
        if (now == trouble) std::memcpy(to, from, bytes); // otherwise the memory is gone
    });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    FAKE_CALL("cudaMemsetAsync");
    FAKE_EXPECT(stream, "cudaMemsetAsync");
    submit_call(lock, stream->state, {"a memset", {}, {{to, bytes}}}, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
}
/// Plays a kernel, so the stream must be of the current device.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    const auto uses = std::exchange(declared(), {});
    FAKE_CALL("cudaLaunchHostFunc");
    FAKE_EXPECT(stream, "cudaLaunchHostFunc");
    if (stream->state->device != current()) {
        complain("cudaLaunchHostFunc: into a stream of another device");
        return failed(cudaErrorInvalidResourceHandle);
    }
    submit_call(lock, stream->state, uses, [=] { function(argument); });
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    FAKE_CALL("cudaStreamBeginCapture");
    FAKE_EXPECT(stream, "cudaStreamBeginCapture");
    if (stream->state->capturing) return failed(cudaErrorIllegalState);
    stream->state->capturing = std::make_shared<capture>();
    stream->state->captured_front.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    FAKE_CALL("cudaStreamEndCapture");
    FAKE_EXPECT(stream, "cudaStreamEndCapture");
    *graph = nullptr;
    const auto captured = stream->state->capturing;
    if (!captured) return failed(cudaErrorIllegalState);
    // Every node must precede the last one of the origin.
    std::set<std::size_t> reached = stream->state->captured_front;
    for (std::size_t i = captured->nodes.size(); i-- > 0;)
        if (reached.contains(i)) reached.insert(captured->nodes[i].after.begin(), captured->nodes[i].after.end());
    for (const auto* s : gpu().streams)
        if (s->state->capturing == captured) {
            s->state->capturing = nullptr;
            s->state->captured_front.clear();
        }
    if (reached.size() != captured->nodes.size()) {
        *captured = {};
        return failed(cudaErrorStreamCaptureUnjoined);
    }
    *graph = new CUgraph_st{std::exchange(*captured, {})}; // events may keep the rest
    ++gpu().alive.graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    FAKE_RELEASE("cudaGraphDestroy");
    --gpu().alive.graphs;
    delete graph;
    return failed(result);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    FAKE_CALL("cudaGraphInstantiate");
    *executable = new CUgraphExec_st{*graph};
    ++gpu().alive.graphs;
    return cudaSuccess;
}
/// Launched work continues.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    FAKE_RELEASE("cudaGraphExecDestroy");
    --gpu().alive.graphs;
    delete executable;
    gpu().notify();
    return failed(result);
}
/// Nodes run in a random order that the edges allow.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    FAKE_CALL("cudaGraphLaunch");
    FAKE_EXPECT(stream, "cudaGraphLaunch");
    const auto s = stream->state;
    const auto& nodes = executable->nodes;
    const auto all = std::make_shared<launched>();
    all->nodes.resize(nodes.size());
    all->left = nodes.size();
    all->kept = executable->kept;
    std::vector<std::size_t> numbers{write_log(*s, {})};
    gpu().put(lock, s,
              {[] { return true; },
               [all] {
                   const std::scoped_lock inner{gpu().mutex};
                   for (const auto& node : all->nodes)
                       if (node.open == 0) gpu().release(node.held);
               }});
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const auto& node = nodes[i];
        std::vector<std::size_t> after{numbers.front()};
        for (const auto before : node.after)
            after.push_back(numbers[before + 1]);
        auto number = race_log::none;
        if (gpu().settings.log_accesses) {
            auto& chain = executable->chains.try_emplace(node.from, race_log::none).first->second;
            number = gpu().log.add(chain_of(chain), node.uses.name, in_log(node.uses), after);
        }
        numbers.push_back(number);
        const auto made = node.make();
        const auto ready = [of = made.ready, number] { return !of || of(number); };
        const auto run = [all, i, of = made.run] {
            if (of) of();
            const std::scoped_lock inner{gpu().mutex};
            for (const auto later : all->nodes[i].followers)
                if (--all->nodes[later].open == 0) gpu().release(all->nodes[later].held);
            if (--all->left == 0) all->kept.clear();
        };
        auto own = std::make_shared<stream_state>();
        own->device = node.device;
        gpu().hold(own, {ready, run});
        all->nodes[i].held = own;
        all->nodes[i].open = node.after.size();
        for (const auto before : node.after)
            all->nodes[before].followers.push_back(i);
    }
    write_log(*s, {}, numbers);
    gpu().put(lock, s, {[all] { return all->left == 0; }, [] {}});
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
