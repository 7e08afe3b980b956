#pragma once

#include "optpipe/core/index.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// Uses of MPI that tests need in addition to the library's.
namespace world {

inline optpipe::rank self(MPI_Comm among = MPI_COMM_WORLD) {
    int number = 0;
    MPI_Comm_rank(among, &number);
    return optpipe::rank{number};
}
inline std::size_t ranks(MPI_Comm among = MPI_COMM_WORLD) {
    int number = 0;
    MPI_Comm_size(among, &number);
    return static_cast<std::size_t>(number);
}

/// The texts of all ranks, on every rank; each is cut after about 1,000 characters.
inline std::vector<std::string> collect(const std::string& text) {
    constexpr std::size_t room = 1200;
    std::string mine = text.substr(0, room - 1);
    mine.resize(room);
    std::vector<char> all(room * ranks());
    MPI_Allgather(mine.data(), room, MPI_CHAR, all.data(), room, MPI_CHAR, MPI_COMM_WORLD);
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < ranks(); ++r)
        texts.emplace_back(all.data() + r * room);
    return texts;
}
inline std::size_t sum(std::size_t of) {
    unsigned long mine = of;
    unsigned long all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/// A communicator of the first ranks; null on the others.
class first_ranks {
public:
    explicit first_ranks(std::size_t count) {
        MPI_Comm_split(MPI_COMM_WORLD, self().position() < count ? 0 : MPI_UNDEFINED, 0, &among_);
    }
    first_ranks(const first_ranks&) = delete;
    first_ranks& operator=(const first_ranks&) = delete;
    ~first_ranks() {
        if (among_ != MPI_COMM_NULL) MPI_Comm_free(&among_);
    }
    explicit operator bool() const { return among_ != MPI_COMM_NULL; }
    MPI_Comm native() const { return among_; }

private:
    MPI_Comm among_ = MPI_COMM_NULL;
};

} // namespace world
