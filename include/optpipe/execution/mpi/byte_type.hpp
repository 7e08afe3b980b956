#pragma once

#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <array>
#include <cstddef>
#include <limits>

namespace optpipe::mpi {

/// A datatype and a count that together describe `bytes` bytes. A count of single bytes in MPI would be limited to 2
/// GiB. The type may be destroyed once the MPI call has returned.
class byte_type {
public:
    static constexpr std::size_t largest_count = std::numeric_limits<int>::max();

    explicit byte_type(std::size_t bytes, std::size_t block = largest_count) {
        if (bytes <= block) {
            count_ = static_cast<int>(bytes);
            return;
        }
        MPI_Datatype whole = MPI_DATATYPE_NULL;
        check(MPI_Type_contiguous(static_cast<int>(block), MPI_BYTE, &whole), "MPI_Type_contiguous");
        const auto blocks = bytes / block;
        const std::array<int, 2> counts{static_cast<int>(blocks), static_cast<int>(bytes % block)};
        const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(blocks * block)};
        const std::array<MPI_Datatype, 2> types{whole, MPI_BYTE};
        const int code = MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &made_);
        static_cast<void>(MPI_Type_free(&whole));
        check(code, "MPI_Type_create_struct");
        check(MPI_Type_commit(&made_), "MPI_Type_commit");
    }
    byte_type(const byte_type&) = delete;
    byte_type& operator=(const byte_type&) = delete;
    ~byte_type() {
        if (made_ != MPI_DATATYPE_NULL) static_cast<void>(MPI_Type_free(&made_));
    }
    [[nodiscard]] MPI_Datatype native() const { return made_ == MPI_DATATYPE_NULL ? MPI_BYTE : made_; }
    [[nodiscard]] int count() const { return count_; }

private:
    MPI_Datatype made_ = MPI_DATATYPE_NULL;
    int count_ = 1;
};

/// The number of bytes received.
[[nodiscard]] inline std::size_t bytes_of(const MPI_Status& status) {
    MPI_Count bytes = 0;
    check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
    return bytes < 0 ? 0 : static_cast<std::size_t>(bytes);
}

} // namespace optpipe::mpi
