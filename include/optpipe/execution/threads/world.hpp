#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/threads/clock.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/execution/threads/host_links.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/execution/threads/rendezvous.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace optpipe::threads {

/// State that all ranks of one process share.
struct world {
    world(std::size_t count, options given, message_carrier& by)
        : ranks{count}, how{std::move(given)}, messages{by}, links{count, how.transfer} {}

    std::size_t ranks;
    options how;
    shared_clock clock;
    failure failed;
    message_carrier& messages;
    host_links links;
};

class lane_thread;

/// State that the lanes of one rank share.
struct rank_state {
    rank_state(world& of, rank r) : all{of}, self{r} {}

    void enter(lane_thread& l);
    void leave(lane_thread& l);

    world& all;
    rank self;
    /// Whether the rank has stopped without an error message (`fault_injection::silent_at`).
    std::atomic<bool> silent{false};
    std::mutex mutex;
    std::condition_variable idle;
    /// Used only by the thread that issues.
    std::vector<lane_thread*> lanes;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include <algorithm>

namespace optpipe::threads {

OPTPIPE_INLINE void rank_state::enter(lane_thread& l) { lanes.push_back(&l); }
OPTPIPE_INLINE void rank_state::leave(lane_thread& l) { lanes.erase(std::find(lanes.begin(), lanes.end(), &l)); }

} // namespace optpipe::threads
#endif
