#pragma once

#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace optpipe::mpi {

/// A duplicate of another communicator. The duplicate returns errors instead of ending the job, and carries only this
/// library's messages.
class communicator {
public:
    using milliseconds = std::chrono::milliseconds;

    /// Returns when all ranks have joined. Throws if a rank doesn't join within `patience`.
    communicator(MPI_Comm of, milliseconds patience) {
        auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
        MPI_Request made = MPI_REQUEST_NULL;
        check(MPI_Comm_idup(of, copy.get(), &made), "MPI_Comm_idup");
        check(MPI_Comm_rank(of, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(of, &ranks_), "MPI_Comm_size");
        if (!wait(made, patience)) {
            static_cast<void>(copy.release()); // MPI may still use the duplicate
            throw timeout_error{"mpi: rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + " waited " +
                                std::to_string(patience.count()) + " ms for the others to come"};
        }
        native_ = *copy;
        check(MPI_Comm_set_errhandler(native_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    communicator(communicator&& other) noexcept
        : native_{std::exchange(other.native_, MPI_COMM_NULL)}, rank_{other.rank_}, ranks_{other.ranks_},
          frees_{other.frees_} {}
    communicator& operator=(communicator&&) = delete;
    ~communicator() {
        if (frees_ && native_ != MPI_COMM_NULL) static_cast<void>(MPI_Comm_free(&native_));
    }

    [[nodiscard]] MPI_Comm native() const { return native_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] int largest_tag() const {
        void* value = nullptr;
        int there = 0;
        check(MPI_Comm_get_attr(native_, MPI_TAG_UB, &value, &there), "MPI_Comm_get_attr");
        return there ? *static_cast<int*>(value) : std::numeric_limits<short>::max();
    }

    /// Makes the destructor free the communicator. Call this function only when all ranks agree that no messages are
    /// running. A running message could reach a later communicator with the same identity.
    void free_at_end() { frees_ = true; }

private:
    MPI_Comm native_ = MPI_COMM_NULL;
    int rank_ = 0;
    int ranks_ = 0;
    bool frees_ = false;
};

} // namespace optpipe::mpi
