#pragma once

#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace optpipe::bootstrap {

/// Distributes `bytes` of rank 0 to all ranks of a communicator, like `share_by_tcp`. The bytes can be NCCL's ids
/// (`nccl::world_id`). All ranks must call `share_by_mpi` together. Throws after `patience`.
inline void share_by_mpi(std::span<std::byte> bytes, MPI_Comm among, std::chrono::milliseconds patience) {
    auto room = std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end());
    MPI_Request shared = MPI_REQUEST_NULL;
    mpi::check(MPI_Ibcast(room->data(), static_cast<int>(room->size()), MPI_BYTE, 0, among, &shared), "MPI_Ibcast");
    if (!mpi::wait(shared, patience)) {
        static_cast<void>(room.release()); // a collective can't be cancelled, so MPI may still write to this memory
        throw mpi::timeout_error{"mpi: waited " + std::to_string(patience.count()) + " ms for what rank 0 shares"};
    }
    std::copy(room->begin(), room->end(), bytes.begin());
}

} // namespace optpipe::bootstrap
