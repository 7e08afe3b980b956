#include "nccl.hpp"

#include "cuda.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

struct communicator_state;

/// The data of all ranks, to be summed in their order.
struct summands {
    void* own = nullptr;
    std::size_t bytes = 0;
    ncclDataType_t type = ncclFloat;
    /// Data by rank, without this rank's.
    std::vector<std::vector<std::byte>> others;
};
/// One end of a message.
struct message_end {
    int peer = 0;
    bool is_send = false;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t size = 0;
    bool is_lost = false;
    cudaStream_t stream = nullptr;
    /// The sum that this receive is part of; it goes into the sum's memory.
    std::shared_ptr<summands> sum{};
};
/// The messages of one group on one communicator.
struct kernel {
    std::shared_ptr<communicator_state> on;
    std::vector<message_end> ends;
    /// Number of the group's other streams that have reached it.
    std::size_t streams_to_come = 0;
    bool begun = false;
    bool over = false;
    std::size_t met = 0;
    /// Number in the log of the device.
    std::size_t number = 0;
    /// A meeting of its ends: the other kernel, and the places of both.
    struct meeting {
        std::shared_ptr<kernel> sender, receiver;
        std::size_t sent = 0, received = 0;
        bool copied = false;
    };
    std::vector<std::shared_ptr<meeting>> meetings;
};
/// Ends that wait for their partner.
struct channel {
    std::deque<std::pair<std::shared_ptr<kernel>, std::size_t>> sends, receives;
};
struct world {
    std::set<int> joined;
    int ranks = 0;
    std::map<std::pair<int, int>, channel> channels;
    /// Pairs of ranks, the first of which has had messages for the second.
    std::set<std::pair<int, int>> wanted;
};
/// Outlives its communicator while any of its work is on a device.
struct communicator_state {
    std::shared_ptr<world> all;
    int rank = 0;
    bool blocking = false;
    bool aborted = false;
    /// Kernels in the order of issue, in which they run.
    std::deque<std::shared_ptr<kernel>> kernels{};
    /// Shared by all graphs that contain some of its work.
    std::shared_ptr<int> captured = std::make_shared<int>();

    [[nodiscard]] bool drained() const { return kernels.empty() && captured.use_count() == 1; }
};

} // namespace

struct ncclComm {
    std::shared_ptr<communicator_state> state = std::make_shared<communicator_state>();
    int device = 0;
    /// Whether it was used and hasn't been queried since.
    bool unsettled = true;
    /// Ends of a closed group that aren't in the streams yet.
    std::vector<message_end> closed{};
    std::size_t asked = 0;
    /// The thread whose open group it is in.
    std::thread::id in_group_of{};
};

namespace {

struct library {
    std::mutex mutex;
    fake_nccl::settings settings;
    std::map<std::string, std::size_t> counts;
    std::map<std::string, std::shared_ptr<world>> worlds;
    std::set<ncclComm_t> alive;
    std::vector<std::string> complaints;
    std::vector<ncclConfig_t> configurations;
    std::size_t sends = 0;
    std::size_t ids = 0;
    std::size_t groups = 0;
    std::size_t open_groups = 0;
};
library& lib() {
    static library the_one;
    return the_one;
}
struct open_group {
    int depth = 0;
    std::vector<std::pair<ncclComm_t, std::vector<message_end>>> messages;
    std::vector<ncclComm_t> aborted;
};
open_group& group() {
    thread_local open_group mine;
    return mine;
}

bool fails(const char* name, ncclResult_t& result) {
    const std::scoped_lock lock{lib().mutex};
    const auto number = ++lib().counts[name];
    if (lib().settings.failing_call != name || lib().settings.failing_number != number) return false;
    result = lib().settings.failure;
    return true;
}
#define FAKE_CALL(name)                                                                                                \
    if (ncclResult_t result = ncclSuccess; fails(name, result)) return result
/// Begins a release function: it releases, and returns the error at the end.
#define FAKE_RELEASE(name)                                                                                             \
    ncclResult_t result = ncclSuccess;                                                                                 \
    fails(name, result)

// The functions below are called with the library's mutex held. The device holds its own mutex while it queries whether
// messages have met, so none of its functions may be called at that time.
void complain(std::string what) { lib().complaints.push_back(std::move(what)); }
bool is_there(ncclComm_t c, const char* call) {
    if (lib().alive.contains(c)) return true;
    complain(std::string{call} + ": a communicator that isn't there");
    return false;
}
void check_use(ncclComm_t c, const char* call) {
    const auto me = std::this_thread::get_id();
    if (group().depth == 0) complain(std::string{call} + ": outside of a group");
    if (c->unsettled) complain(std::string{call} + ": the communicator hasn't settled");
    if (c->in_group_of != std::thread::id{} && c->in_group_of != me)
        complain(std::string{call} + ": another thread has the communicator in a group");
    c->in_group_of = me;
}
[[nodiscard]] bool is_connected(const communicator_state& s, const std::vector<message_end>& ends) {
    return std::all_of(ends.begin(), ends.end(), [&](const message_end& e) {
        return s.all->wanted.contains({e.peer, s.rank});
    });
}

/// Connects one end with its partner, if the partner exists.
void begin_end(const std::shared_ptr<kernel>& k, std::size_t at) {
    const auto& e = k->ends[at];
    auto& s = *k->on;
    auto& way = s.all->channels[e.is_send ? std::pair{s.rank, e.peer} : std::pair{e.peer, s.rank}];
    auto& mine = e.is_send ? way.sends : way.receives;
    auto& others = e.is_send ? way.receives : way.sends;
    if (others.empty()) return mine.push_back({k, at});
    const auto [other, place] = others.front();
    others.pop_front();
    if (e.is_lost || other->ends[place].is_lost) return;
    fake_cuda::meet(k->number, other->number);
    const auto both = std::make_shared<kernel::meeting>(e.is_send ? kernel::meeting{k, other, at, place}
                                                                  : kernel::meeting{other, k, place, at});
    for (const auto& each : {k, other}) {
        ++each->met;
        each->meetings.push_back(both);
    }
}
/// Removes the ends of a communicator; their partners then wait forever, as on a device.
void withdraw(const std::shared_ptr<communicator_state>& gone) {
    const auto is_mine = [&](const auto& end) { return end.first->on == gone; };
    for (auto& [ranks, way] : gone->all->channels)
        for (auto* ends : {&way.sends, &way.receives})
            ends->erase(std::remove_if(ends->begin(), ends->end(), is_mine), ends->end());
}
bool is_ready(const std::shared_ptr<kernel>& k, std::size_t number) {
    const std::scoped_lock lock{lib().mutex};
    auto& s = *k->on;
    if (s.aborted) return true;
    if (!k->begun) {
        if (k->streams_to_come > 0 || s.kernels.front() != k) return false;
        k->begun = true;
        k->number = number;
        for (std::size_t i = 0; i < k->ends.size(); ++i)
            begin_end(k, i);
    }
    return k->met == k->ends.size();
}
template <class Real> void add_up(const summands& all) {
    auto* const own = static_cast<Real*>(all.own);
    for (std::size_t i = 0; i < all.bytes / sizeof(Real); ++i) {
        Real sum{};
        for (const auto& each : all.others)
            sum += each.empty() ? own[i] : reinterpret_cast<const Real*>(each.data())[i];
        own[i] = sum;
    }
}
/// Called once for each sum, when all of its data has arrived.
void finish_sums(const kernel& k) {
    std::set<std::shared_ptr<summands>> sums;
    for (const auto& e : k.ends)
        if (e.sum) sums.insert(e.sum);
    for (const auto& each : sums)
        each->type == ncclFloat ? add_up<float>(*each) : add_up<double>(*each);
}
void run(const std::shared_ptr<kernel>& k) {
    const std::scoped_lock lock{lib().mutex};
    for (const auto& m : std::exchange(k->meetings, {})) {
        // Memory of an aborted communicator may be freed.
        if (std::exchange(m->copied, true) || m->sender->on->aborted || m->receiver->on->aborted) continue;
        const auto& sent = m->sender->ends[m->sent];
        const auto& received = m->receiver->ends[m->received];
        std::memcpy(received.to, sent.from, std::min(sent.size, received.size));
    }
    if (!k->on->aborted) finish_sums(*k);
    k->over = true;
    auto& waiting = k->on->kernels;
    waiting.erase(std::find(waiting.begin(), waiting.end(), k));
}

/// Puts the messages of a group on one communicator into their streams: one kernel, for which all of these wait. To be
/// called without the library's mutex.
void launch(const std::shared_ptr<communicator_state>& on, const std::vector<message_end>& ends) {
    if (ends.empty()) return;
    fake_cuda::accesses uses{"a group of messages", {}, {}};
    std::set<cudaStream_t> streams;
    for (const auto& e : ends) {
        if (e.is_send)
            uses.reads.push_back({e.from, e.size});
        else
            uses.writes.push_back({e.sum ? e.sum->own : e.to, e.size});
        streams.insert(e.stream);
    }
    const auto first = ends.front().stream;
    streams.erase(first);
    // The latest kernel, which belongs to the current launch.
    const auto latest = std::make_shared<std::shared_ptr<kernel>>();
    const auto make = [on, ends, latest, others = streams.size()] {
        const auto k = std::make_shared<kernel>();
        k->on = on;
        k->ends = ends;
        k->streams_to_come = others;
        *latest = k;
        const std::scoped_lock lock{lib().mutex};
        on->kernels.push_back(k);
        return fake_cuda::work{[k](std::size_t number) { return is_ready(k, number); }, [k] { run(k); }};
    };
    fake_cuda::enqueue(first, uses, make, on->captured);
    for (const auto other : streams) {
        const auto join = [latest] {
            const auto come = std::make_shared<bool>(false);
            return fake_cuda::work{[k = *latest, come](std::size_t) {
                                       const std::scoped_lock lock{lib().mutex};
                                       if (!std::exchange(*come, true)) --k->streams_to_come;
                                       return k->over;
                                   },
                                   [] {}};
        };
        fake_cuda::enqueue(other, {}, join, on->captured);
    }
}

/// Adds an end to the open group.
void put(ncclComm_t c, const message_end& e) {
    auto& all = group().messages;
    auto mine = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == c; });
    if (mine == all.end()) mine = all.insert(all.end(), {c, {}});
    mine->second.push_back(e);
}
ncclResult_t add(ncclComm_t c, message_end e) {
    const char* const call = e.is_send ? "ncclSend" : "ncclRecv";
    const bool is_device_memory = e.size == 0 || fake_cuda::is_device_memory(e.is_send ? e.from : e.to, e.size);
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, call) || e.peer < 0 || e.peer >= c->state->all->ranks) return ncclInvalidArgument;
    check_use(c, call);
    if (!is_device_memory) complain(std::string{call} + ": no device memory");
    if (e.is_send) e.is_lost = ++lib().sends == lib().settings.lost_message;
    put(c, e);
    return ncclSuccess;
}

/// Waits until none of them has work left to run, and forgets them.
void reclaim(const std::vector<ncclComm_t>& all) {
    for (auto* c : all) {
        const auto state = c->state;
        fake_cuda::wait_until("ncclCommAbort", [state] {
            const std::scoped_lock lock{lib().mutex};
            return state->drained();
        });
        delete c;
    }
}
/// Starts the messages of a closed group.
void close(open_group&& closed) {
    std::vector<std::pair<std::shared_ptr<communicator_state>, std::vector<message_end>>> at_once;
    {
        const std::scoped_lock lock{lib().mutex};
        for (auto& [c, ends] : closed.messages) {
            if (!lib().alive.contains(c)) continue;
            for (const auto& e : ends)
                c->state->all->wanted.insert({c->state->rank, e.peer});
            c->in_group_of = {};
            c->asked = 0;
            c->unsettled = !c->state->blocking;
            if (c->state->blocking)
                at_once.emplace_back(c->state, std::move(ends));
            else
                c->closed = std::move(ends);
        }
    }
    fake_cuda::poke();
    for (const auto& [state, ends] : at_once) {
        fake_cuda::wait_until("ncclGroupEnd", [&state = state, &ends = ends] {
            const std::scoped_lock lock{lib().mutex};
            return state->aborted || is_connected(*state, ends);
        });
        if (!state->aborted) launch(state, ends);
    }
}

} // namespace

namespace fake_nccl {

void reset(const settings& s) {
    const std::scoped_lock lock{lib().mutex};
    lib().settings = s;
    lib().counts.clear();
    lib().worlds.clear();
    lib().alive.clear();
    lib().complaints.clear();
    lib().configurations.clear();
    lib().sends = 0;
    lib().groups = 0;
    lib().open_groups = 0;
}
std::size_t alive() {
    const std::scoped_lock lock{lib().mutex};
    return lib().alive.size();
}
std::vector<std::string> called() {
    const std::scoped_lock lock{lib().mutex};
    std::vector<std::string> names;
    for (const auto& [name, count] : lib().counts)
        if (count > 0) names.push_back(name);
    return names;
}
std::vector<ncclConfig_t> configurations() {
    const std::scoped_lock lock{lib().mutex};
    return lib().configurations;
}
std::vector<std::string> complaints() {
    auto all = fake_cuda::complaints();
    const std::scoped_lock lock{lib().mutex};
    all.insert(all.end(), lib().complaints.begin(), lib().complaints.end());
    return all;
}
std::size_t open_groups() {
    const std::scoped_lock lock{lib().mutex};
    return lib().open_groups;
}
std::size_t count(const std::string& call) {
    const std::scoped_lock lock{lib().mutex};
    return lib().counts[call];
}

} // namespace fake_nccl

extern "C" {

const char* ncclGetErrorString(ncclResult_t code) {
    return code == ncclRemoteError ? "a peer is gone" : "failed as the test wants it";
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    FAKE_CALL("ncclGetUniqueId");
    const std::scoped_lock lock{lib().mutex};
    std::memset(id, 0, sizeof *id);
    id->internal[0] = static_cast<char>(++lib().ids);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* c, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    FAKE_CALL("ncclCommInitRankConfig");
    int device = 0;
    cudaGetDevice(&device);
    std::shared_ptr<world> all;
    {
        const std::scoped_lock lock{lib().mutex};
        const bool blocking = config->blocking != 0;
        if (blocking && !lib().settings.allow_blocking) return ncclInvalidUsage; // it could never be aborted
        lib().configurations.push_back(*config);
        auto& w = lib().worlds[std::string(id.internal, sizeof id.internal)];
        if (!w) w = std::make_shared<world>();
        w->ranks = ranks;
        if (!w->joined.insert(rank).second) return ncclInvalidUsage;
        *c = new ncclComm{};
        (*c)->state->all = all = w;
        (*c)->state->rank = rank;
        (*c)->state->blocking = blocking;
        (*c)->device = device;
        lib().alive.insert(*c);
        if (!blocking) return ncclInProgress;
        (*c)->unsettled = false;
    }
    fake_cuda::wait_until("ncclCommInitRankConfig", [&] {
        const std::scoped_lock lock{lib().mutex};
        return static_cast<int>(all->joined.size()) == ranks;
    });
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
    FAKE_CALL("ncclCommUserRank");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommUserRank")) return ncclInvalidArgument;
    *rank = c->state->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int* ranks) {
    FAKE_CALL("ncclCommCount");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommCount")) return ncclInvalidArgument;
    *ranks = c->state->all->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t c, int* device) {
    FAKE_CALL("ncclCommCuDevice");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommCuDevice")) return ncclInvalidArgument;
    *device = c->device;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* status) {
    FAKE_CALL("ncclCommGetAsyncError");
    std::shared_ptr<communicator_state> state;
    std::vector<message_end> ends;
    {
        const std::scoped_lock lock{lib().mutex};
        if (!is_there(c, "ncclCommGetAsyncError")) return ncclInvalidArgument;
        state = c->state;
        const bool is_complete = static_cast<int>(state->all->joined.size()) == state->all->ranks;
        // Not at the first query, and not before the peers have arrived.
        const bool is_on_its_way = !c->closed.empty() && (c->asked++ == 0 || !is_connected(*state, c->closed));
        *status = is_complete && !is_on_its_way ? ncclSuccess : ncclInProgress;
        if (*status == ncclSuccess) {
            c->unsettled = false;
            ends = std::exchange(c->closed, {});
        }
        if (lib().groups >= lib().settings.lost_after_groups) *status = ncclRemoteError;
    }
    launch(state, ends);
    return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
    FAKE_CALL("ncclGroupStart");
    ++group().depth;
    const std::scoped_lock lock{lib().mutex};
    ++lib().open_groups;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    ncclResult_t result = ncclSuccess;
    const bool is_failing = fails("ncclGroupEnd", result);
    {
        const std::scoped_lock lock{lib().mutex};
        if (group().depth == 0) {
            complain("ncclGroupEnd: no group is open");
            return ncclInvalidUsage;
        }
        --lib().open_groups;
    }
    if (--group().depth > 0) return result;
    auto closed = std::exchange(group(), {});
    reclaim(closed.aborted);
    if (is_failing) closed.messages.clear();
    const bool is_asynchronous = std::any_of(closed.messages.begin(), closed.messages.end(),
                                             [](const auto& entry) { return !entry.first->state->blocking; });
    close(std::move(closed));
    if (is_failing) return result;
    const std::scoped_lock lock{lib().mutex};
    ++lib().groups;
    return is_asynchronous ? ncclInProgress : ncclSuccess; // until it is queried again
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t c,
                      cudaStream_t stream) {
    FAKE_CALL("ncclSend");
    return add(c, {.peer = peer, .is_send = true, .from = data, .size = count, .stream = stream});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t c, cudaStream_t stream) {
    FAKE_CALL("ncclRecv");
    return add(c, {.peer = peer, .to = data, .size = count, .stream = stream});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how,
                           ncclComm_t c, cudaStream_t stream) {
    FAKE_CALL("ncclAllReduce");
    const auto size = count * (type == ncclFloat ? sizeof(float) : sizeof(double));
    const bool is_device_memory = fake_cuda::is_device_memory(to, size);
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclAllReduce") || from != to || how != ncclSum || (type != ncclFloat && type != ncclDouble))
        return ncclInvalidArgument;
    check_use(c, "ncclAllReduce");
    if (!is_device_memory) complain("ncclAllReduce: no device memory");
    const auto ranks = static_cast<std::size_t>(c->state->all->ranks);
    const auto sum = std::make_shared<summands>(summands{to, size, type, {}});
    sum->others.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        const auto peer = static_cast<int>(r);
        if (peer == c->state->rank) continue;
        sum->others[r].resize(size);
        put(c, {.peer = peer, .is_send = true, .from = to, .size = size, .stream = stream});
        put(c, {.peer = peer, .to = sum->others[r].data(), .size = size, .stream = stream, .sum = sum});
    }
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    FAKE_RELEASE("ncclCommDestroy");
    {
        const std::scoped_lock lock{lib().mutex};
        if (!is_there(c, "ncclCommDestroy")) return ncclInvalidArgument;
        if (c->unsettled) complain("ncclCommDestroy: the communicator hasn't settled");
        lib().alive.erase(c);
    }
    reclaim({c});
    return result;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    FAKE_RELEASE("ncclCommAbort");
    std::chrono::milliseconds abort_pause{};
    {
        const std::scoped_lock lock{lib().mutex};
        abort_pause = lib().settings.abort_pause;
        if (!is_there(c, "ncclCommAbort")) return ncclInvalidArgument;
        c->state->aborted = true;
        withdraw(c->state);
        lib().alive.erase(c);
    }
    fake_cuda::poke();
    if (group().depth > 0) {
        group().aborted.push_back(c);
        std::this_thread::sleep_for(abort_pause);
    } else {
        reclaim({c});
    }
    return result;
}

} // extern "C"
