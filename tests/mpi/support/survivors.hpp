#pragma once

#include "mpi/support/world.hpp"
#include "optpipe/core/index.hpp"

#include <mpi.h>

#include <array>
#include <string>
#include <vector>

/// The processes that remain after one is gone.
namespace survivors {

/// The texts of all survivors, on the first of them; by plain messages, because collectives need every process.
inline std::vector<std::string> collect(const std::string& mine, optpipe::rank victim, optpipe::rank first) {
    if (world::self() != first) {
        MPI_Send(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, static_cast<int>(first.value()), 0,
                 MPI_COMM_WORLD);
        return {};
    }
    std::vector<std::string> all{mine};
    for (const auto r : optpipe::index_range<optpipe::rank>{world::ranks()}) {
        if (r == victim || r == first) continue;
        std::array<char, 2000> text{};
        MPI_Recv(text.data(), 1999, MPI_CHAR, static_cast<int>(r.value()), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        all.emplace_back(text.data());
    }
    return all;
}

} // namespace survivors
