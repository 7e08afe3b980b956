#pragma once

#include "optpipe/core/standard.hpp"

#include <chrono>
#include <cstdint>

namespace optpipe::nccl {

/// An instant that ranks share, on the clock of one of them.
template <class Clock> struct shared_instant {
    typename Clock::time_point when{};
    /// How far off it may be.
    typename Clock::duration error{};
};

/// Rank 0's `now()` when it called this, on the clock of each rank. Each rank asks the one before it, over a few round
/// trips of which it takes the shortest; errors add up along the way. For all ranks at once.
///
/// `send(peer, number)` returns when the peer has taken it, or will; `receive(peer)` when it has come.
template <class Clock, class Send, class Receive>
[[nodiscard]] shared_instant<Clock> share_instant(int rank, int ranks, const Send& send, const Receive& receive) {
    using duration = typename Clock::duration;
    constexpr int rounds = 5; // more make it better by less and less
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
        begin.error = shortest / 2 + duration{1 + error_before}; // halves are rounded
    }
    for (int i = 0; i < rounds && rank + 1 < ranks; ++i) {
        static_cast<void>(receive(rank + 1));
        send(rank + 1, (Clock::now() - begin.when).count());
        send(rank + 1, begin.error.count());
    }
    return begin;
}

} // namespace optpipe::nccl
