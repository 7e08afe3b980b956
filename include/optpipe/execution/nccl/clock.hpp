#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstdint>

namespace optpipe::nccl {

/// An instant common to all ranks, on the clock of one rank.
template <class Clock> struct shared_instant {
    typename Clock::time_point when{};
    /// Largest possible error.
    typename Clock::duration error{};
};

/// The instant of rank 0's call, on the clock of the calling rank. Each rank measures several round trips to the
/// previous rank, and uses the shortest. Errors add up from rank to rank. All ranks must call `share_instant` together.
///
/// `send(peer, number)` returns when the number has been sent. `receive(peer)` returns when the number has arrived.
template <class Clock, class Send, class Receive>
[[nodiscard]] shared_instant<Clock> share_instant(int rank, int ranks, const Send& send, const Receive& receive) {
    using duration = typename Clock::duration;
    constexpr int rounds = 5; // more rounds hardly improve the result
    shared_instant<Clock> begin{Clock::now(), duration{}};
    if (rank > 0) {
        auto shortest = duration::max();
        std::int64_t error_before = 0;
        for (int i = 0; i < rounds; ++i) {
            const auto asked = Clock::now();
            send(rank - 1, 0);
            const duration passed{receive(rank - 1)};
            const auto took = Clock::now() - asked;
            error_before = receive(rank - 1);
            if (took >= shortest) continue;
            shortest = took;
            begin.when = asked + took / 2 - passed;
        }
        begin.error = shortest / 2 + duration{1 + error_before}; // one more tick, because halving rounds down
    }
    for (int i = 0; i < rounds && rank + 1 < ranks; ++i) {
        static_cast<void>(receive(rank + 1));
        send(rank + 1, (Clock::now() - begin.when).count());
        send(rank + 1, begin.error.count());
    }
    return begin;
}

} // namespace optpipe::nccl
