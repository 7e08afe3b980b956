#include "nccl.hpp"

#include "cuda.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace {

/// One message: complete once both ends have come.
struct message {
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t sent = 0;
    std::size_t wanted = 0;
    bool sender_here = false;
    bool receiver_here = false;
    bool copied = false;
    bool is_lost = false;
    /// Of both ends: what is aborted may be gone from memory.
    std::shared_ptr<bool> sender_aborted, receiver_aborted;

    [[nodiscard]] bool is_dead() const {
        return (sender_aborted && *sender_aborted) || (receiver_aborted && *receiver_aborted);
    }
};
struct world {
    std::set<int> joined;
    int ranks = 0;
    std::map<std::tuple<int, int, std::size_t>, std::shared_ptr<message>> messages;
};

} // namespace

struct ncclComm {
    std::shared_ptr<world> all;
    int rank = 0;
    int device = 0;
    /// Was used, and not asked since.
    bool unsettled = true;
    /// Whose open group it is in.
    std::thread::id in_group_of{};
    std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
    /// By peer.
    std::map<int, std::size_t> sends, receives;
};

namespace {

struct part {
    std::shared_ptr<message> what;
    bool is_send = false;
    std::shared_ptr<bool> aborted;
    cudaStream_t stream = nullptr;
};
struct library {
    std::mutex mutex;
    fake_nccl::settings settings;
    std::map<std::string, std::size_t> counts;
    std::map<std::string, std::shared_ptr<world>> worlds;
    std::set<ncclComm_t> alive;
    std::vector<std::string> complaints;
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
    std::vector<part> parts;
    std::set<ncclComm_t> used;
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
/// For what gives something back: returns the error at the end, having done it.
#define FAKE_RELEASE(name)                                                                                             \
    ncclResult_t result = ncclSuccess;                                                                                 \
    fails(name, result)

// All of these with the library's mutex held. The device holds its own while it asks whether messages have met, so
// nothing of it may be called then.
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
    group().used.insert(c);
}
/// The group is over: its communicators have to be asked whether they are through with it.
void end_use() {
    for (auto* c : std::exchange(group().used, {}))
        if (lib().alive.contains(c)) {
            c->unsettled = true;
            c->in_group_of = {};
        }
}

/// One kernel per stream of the group.
void launch(std::vector<part> parts) {
    std::map<cudaStream_t, std::vector<part>> by_stream;
    for (auto& p : parts)
        by_stream[p.stream].push_back(std::move(p));
    for (const auto& entry : by_stream) {
        const auto& own = entry.second;
        const auto ready = [own] {
            const std::scoped_lock lock{lib().mutex};
            bool all = true;
            for (const auto& p : own) {
                (p.is_send ? p.what->sender_here : p.what->receiver_here) = true;
                const bool met = p.what->sender_here && p.what->receiver_here && !p.what->is_lost;
                all = all && (*p.aborted || met);
            }
            return all;
        };
        const auto run = [own] {
            const std::scoped_lock lock{lib().mutex};
            for (const auto& p : own) {
                auto& m = *p.what;
                if (m.is_dead() || std::exchange(m.copied, true)) continue;
                std::memcpy(m.to, m.from, std::min(m.sent, m.wanted));
            }
        };
        fake_cuda::enqueue(entry.first, ready, run);
    }
}

ncclResult_t add(ncclComm_t c, int peer, bool is_send, const void* from, void* to, std::size_t size,
                 cudaStream_t stream) {
    const char* const call = is_send ? "ncclSend" : "ncclRecv";
    const bool is_device_memory = size == 0 || fake_cuda::is_device_memory(is_send ? from : to, size);
    {
        const std::scoped_lock lock{lib().mutex};
        if (!is_there(c, call) || peer < 0 || peer >= c->all->ranks) return ncclInvalidArgument;
        check_use(c, call);
        if (!is_device_memory) complain(std::string{call} + ": no device memory");
        const auto number = (is_send ? c->sends : c->receives)[peer]++;
        const auto key = is_send ? std::tuple{c->rank, peer, number} : std::tuple{peer, c->rank, number};
        auto& m = c->all->messages[key];
        if (!m) m = std::make_shared<message>();
        (is_send ? m->sender_aborted : m->receiver_aborted) = c->aborted;
        if (is_send) {
            m->from = from;
            m->sent = size;
            m->is_lost = ++lib().sends == lib().settings.lost_message;
        } else {
            m->to = to;
            m->wanted = size;
        }
        group().parts.push_back({m, is_send, c->aborted, stream});
    }
    if (group().depth == 0) launch(std::exchange(group().parts, {}));
    return ncclSuccess;
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
    if (config->blocking != 0) return ncclInvalidUsage; // it could never be aborted
    int device = 0;
    cudaGetDevice(&device);
    const std::scoped_lock lock{lib().mutex};
    auto& w = lib().worlds[std::string(id.internal, sizeof id.internal)];
    if (!w) w = std::make_shared<world>();
    w->ranks = ranks;
    if (!w->joined.insert(rank).second) return ncclInvalidUsage;
    *c = new ncclComm{};
    (*c)->all = w;
    (*c)->rank = rank;
    (*c)->device = device;
    lib().alive.insert(*c);
    return ncclInProgress;
}
ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
    FAKE_CALL("ncclCommUserRank");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommUserRank")) return ncclInvalidArgument;
    *rank = c->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t c, int* ranks) {
    FAKE_CALL("ncclCommCount");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommCount")) return ncclInvalidArgument;
    *ranks = c->all->ranks;
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
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommGetAsyncError")) return ncclInvalidArgument;
    *status = static_cast<int>(c->all->joined.size()) < c->all->ranks ? ncclInProgress : ncclSuccess;
    if (*status == ncclSuccess) c->unsettled = false;
    if (lib().groups >= lib().settings.lost_after_groups) *status = ncclRemoteError;
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
    if (group().depth == 0) {
        const std::scoped_lock lock{lib().mutex};
        complain("ncclGroupEnd: no group is open");
        return ncclInvalidUsage;
    }
    const bool outermost = --group().depth == 0;
    auto parts = outermost ? std::exchange(group().parts, {}) : std::vector<part>{};
    {
        const std::scoped_lock lock{lib().mutex};
        --lib().open_groups;
        if (outermost) end_use();
    }
    FAKE_CALL("ncclGroupEnd");
    launch(std::move(parts));
    const std::scoped_lock lock{lib().mutex};
    ++lib().groups;
    return ncclInProgress; // until it is asked for again
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t c,
                      cudaStream_t stream) {
    FAKE_CALL("ncclSend");
    return add(c, peer, true, data, nullptr, count, stream);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t c, cudaStream_t stream) {
    FAKE_CALL("ncclRecv");
    return add(c, peer, false, nullptr, data, count, stream);
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    FAKE_RELEASE("ncclCommDestroy");
    const std::scoped_lock lock{lib().mutex};
    if (!is_there(c, "ncclCommDestroy")) return ncclInvalidArgument;
    if (c->unsettled) complain("ncclCommDestroy: the communicator hasn't settled");
    lib().alive.erase(c);
    delete c;
    return result;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    FAKE_RELEASE("ncclCommAbort");
    {
        const std::scoped_lock lock{lib().mutex};
        if (!is_there(c, "ncclCommAbort")) return ncclInvalidArgument;
        *c->aborted = true;
        lib().alive.erase(c);
        delete c;
    }
    fake_cuda::poke();
    return result;
}

} // extern "C"
