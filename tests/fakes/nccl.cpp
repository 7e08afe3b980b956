#include "nccl.hpp"

#include "cuda.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
    std::size_t alive = 0;
    std::size_t ids = 0;
    std::size_t groups = 0;
};
library& lib() {
    static library the_one;
    return the_one;
}
struct open_group {
    int depth = 0;
    std::vector<part> parts;
};
open_group& group() {
    thread_local open_group mine;
    return mine;
}

bool called(const char* name, ncclResult_t& result) {
    const std::scoped_lock lock{lib().mutex};
    const auto number = ++lib().counts[name];
    if (lib().settings.failing_call != name || lib().settings.failing_number != number) return false;
    result = lib().settings.failure;
    return true;
}
#define FAKE_CALL(name)                                                                                                \
    if (ncclResult_t result = ncclSuccess; called(name, result)) return result

/// One kernel per stream of the group.
void launch(std::vector<part> parts) {
    std::map<cudaStream_t, std::vector<part>> by_stream;
    for (auto& p : parts)
        by_stream[p.stream].push_back(std::move(p));
    for (auto& [stream, own] : by_stream) {
        const auto ready = [own] {
            const std::scoped_lock lock{lib().mutex};
            bool all = true;
            for (const auto& p : own) {
                (p.is_send ? p.what->sender_here : p.what->receiver_here) = true;
                all = all && (*p.aborted || (p.what->sender_here && p.what->receiver_here));
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
        fake_cuda::enqueue(stream, ready, run);
    }
}

ncclResult_t add(ncclComm_t c, int peer, bool is_send, const void* from, void* to, std::size_t size,
                 cudaStream_t stream) {
    if (!c || peer < 0 || peer >= c->all->ranks) return ncclInvalidArgument;
    {
        const std::scoped_lock lock{lib().mutex};
        const auto number = (is_send ? c->sends : c->receives)[peer]++;
        const auto key = is_send ? std::tuple{c->rank, peer, number} : std::tuple{peer, c->rank, number};
        auto& m = c->all->messages[key];
        if (!m) m = std::make_shared<message>();
        (is_send ? m->sender_aborted : m->receiver_aborted) = c->aborted;
        if (is_send) {
            m->from = from;
            m->sent = size;
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
    lib().alive = 0;
    lib().groups = 0;
}
std::size_t alive() {
    const std::scoped_lock lock{lib().mutex};
    return lib().alive;
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
    const std::scoped_lock lock{lib().mutex};
    auto& w = lib().worlds[std::string(id.internal, sizeof id.internal)];
    if (!w) w = std::make_shared<world>();
    w->ranks = ranks;
    if (!w->joined.insert(rank).second) return ncclInvalidUsage;
    *c = new ncclComm{};
    (*c)->all = w;
    (*c)->rank = rank;
    ++lib().alive;
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* status) {
    FAKE_CALL("ncclCommGetAsyncError");
    const std::scoped_lock lock{lib().mutex};
    *status = static_cast<int>(c->all->joined.size()) < c->all->ranks ? ncclInProgress : ncclSuccess;
    if (lib().groups >= lib().settings.lost_after_groups) *status = ncclRemoteError;
    return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
    FAKE_CALL("ncclGroupStart");
    ++group().depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    const bool outermost = --group().depth == 0;
    auto parts = outermost ? std::exchange(group().parts, {}) : std::vector<part>{};
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
    FAKE_CALL("ncclCommDestroy");
    const std::scoped_lock lock{lib().mutex};
    --lib().alive;
    delete c;
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
    FAKE_CALL("ncclCommAbort");
    {
        const std::scoped_lock lock{lib().mutex};
        *c->aborted = true;
        --lib().alive;
        delete c;
    }
    fake_cuda::poke();
    return ncclSuccess;
}

} // extern "C"
