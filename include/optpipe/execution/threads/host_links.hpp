#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/threads/clock.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace optpipe::threads {

/// The links between devices and hosts. Transfers on a link run one at a time, in FIFO order. With `duplex_kind::full`,
/// the two directions of a link are independent.
class host_links {
public:
    host_links(std::size_t ranks, const transfer_rules<>& rules);

    /// Occupies the link for the duration `length`, starting at `ready` or later. Returns the time from which the link
    /// is occupied.
    nanoseconds take(rank r, bool inward, nanoseconds ready, nanoseconds length);

private:
    struct link {
        std::mutex mutex;
        nanoseconds free{};
    };
    transfer_rules<> rules_;
    std::vector<std::unique_ptr<link>> links_;
};

} // namespace optpipe::threads

#if OPTPIPE_DEFINES(execution)
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <atomic>

namespace optpipe::threads {

OPTPIPE_INLINE host_links::host_links(std::size_t ranks, const transfer_rules<>& rules) : rules_{rules} {
    if (rules_.link.size() == 0) rules_.link = transfer_rules<>{ranks}.link;
    for (std::size_t i = 0; i < 2 * ranks; ++i)
        links_.push_back(std::make_unique<link>());
}

OPTPIPE_INLINE nanoseconds host_links::take(rank r, bool inward, nanoseconds ready, nanoseconds length) {
    auto& which = *links_[host_channel_of(rules_, r, inward)];
    const std::scoped_lock lock{which.mutex};
    const auto start = std::max(ready, which.free);
    which.free = start + length;
    return start;
}

} // namespace optpipe::threads
#endif
