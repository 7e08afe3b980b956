#pragma once

#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <chrono>
#include <cstdint>

namespace optpipe::mpi {

namespace detail {

/// Sends or receives one number.
inline void hand_over(const communicator& by, int peer, bool sends, std::int64_t& number,
                      std::chrono::milliseconds patience) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (sends)
        check(MPI_Isend(&number, 1, MPI_INT64_T, peer, 0, by.native(), &request), "MPI_Isend");
    else
        check(MPI_Irecv(&number, 1, MPI_INT64_T, peer, 0, by.native(), &request), "MPI_Irecv");
    if (wait(request, patience)) return;
    if (!sends) { // a send of this size doesn't wait
        check(MPI_Cancel(&request), "MPI_Cancel");
        check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    throw timeout_error{"mpi: rank " + std::to_string(peer) + " doesn't answer rank " + std::to_string(by.rank())};
}

} // namespace detail

/// The time of rank 0's call, on the clock of the calling rank. Each rank exchanges several messages with rank 0. The
/// error of a rank's result is at most half of the shortest round trip. All ranks must call `common_begin` together.
[[nodiscard]] inline std::chrono::steady_clock::time_point common_begin(const communicator& by,
                                                                        std::chrono::milliseconds patience) {
    using clock = std::chrono::steady_clock;
    constexpr int rounds = 5;
    const auto here = clock::now();
    auto begin = here;
    auto shortest = clock::duration::max();
    const auto round_trip = [&](int peer, bool asks) {
        const auto asked = clock::now();
        std::int64_t passed = std::chrono::nanoseconds{asked - here}.count();
        detail::hand_over(by, peer, asks, passed, patience);
        if (!asks) passed = std::chrono::nanoseconds{clock::now() - here}.count();
        detail::hand_over(by, peer, !asks, passed, patience);
        const auto took = clock::now() - asked;
        if (!asks || took >= shortest) return;
        shortest = took;
        begin = asked + took / 2 - std::chrono::nanoseconds{passed};
    };
    for (int peer = 1; peer < by.ranks(); ++peer)
        for (int i = 0; i < rounds && (by.rank() == 0 || by.rank() == peer); ++i)
            round_trip(by.rank() == 0 ? peer : 0, by.rank() != 0);
    return begin;
}

} // namespace optpipe::mpi
