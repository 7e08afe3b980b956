#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/session.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace optpipe::mpi {

/// Sums the gradients of a rank's stages over all replicas of the rank. Each replica is a separate process. The
/// function `reduce` of a stage model can call a `gradient_sum`. The calls come from a lane's thread, so MPI must be
/// initialised with MPI_THREAD_MULTIPLE.
///
/// All processes must construct and destroy their `gradient_sum` at the same time. This class sends only on a duplicate
/// of the communicator.
class gradient_sum {
public:
    /// `patience` is the time limit for each wait for other replicas. `patience` must be longer than a step.
    explicit gradient_sum(MPI_Comm replicas, std::chrono::milliseconds patience = std::chrono::minutes{1})
        : among_{usable(replicas), patience}, patience_{patience} {}
    gradient_sum(const gradient_sum&) = delete;
    gradient_sum& operator=(const gradient_sum&) = delete;
    ~gradient_sum() {
        if (healthy_) among_.free_at_end();
    }

    /// The index of this replica. `replicas` is the number of replicas.
    [[nodiscard]] int replica() const { return among_.rank(); }
    [[nodiscard]] int replicas() const { return among_.ranks(); }

    /// Replaces the gradients on each replica by the sum over all replicas. Throws `timeout_error` if some replica
    /// doesn't take part in time. After a `timeout_error`, only the destructor may be called.
    template <class Real> void operator()(std::span<Real> gradients) {
        static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);
        const auto type = std::is_same_v<Real, float> ? MPI_FLOAT : MPI_DOUBLE;
        constexpr std::size_t most = std::numeric_limits<int>::max();
        for (std::size_t begin = 0; begin < gradients.size(); begin += most)
            add(gradients.subspan(begin, std::min(most, gradients.size() - begin)), type);
    }

private:
    static MPI_Comm usable(MPI_Comm replicas) {
        check_thread_level();
        int level = MPI_THREAD_SINGLE;
        check(MPI_Query_thread(&level), "MPI_Query_thread");
        if (level != MPI_THREAD_MULTIPLE)
            throw optpipe::error{"MPI was initialised with " + spelling_of_level(level) +
                                 "; reductions beside the pipeline need MPI_THREAD_MULTIPLE"};
        return replicas;
    }
    template <class Real> void add(std::span<Real> part, MPI_Datatype type) {
        auto room = std::make_unique<std::vector<Real>>(part.begin(), part.end());
        MPI_Request all = MPI_REQUEST_NULL;
        healthy_ = false;
        check(MPI_Iallreduce(MPI_IN_PLACE, room->data(), static_cast<int>(room->size()), type, MPI_SUM, among_.native(),
                             &all),
              "MPI_Iallreduce");
        if (!wait(all, patience_)) {
            static_cast<void>(room.release()); // a collective can't be cancelled, so MPI may still write to this memory
            throw timeout_error{"mpi: replica " + std::to_string(replica()) + " of " + std::to_string(replicas()) +
                                " waited " + std::to_string(patience_.count()) + " ms for the others' gradients"};
        }
        healthy_ = true;
        std::copy(room->begin(), room->end(), part.begin());
    }

    communicator among_;
    std::chrono::milliseconds patience_;
    /// False during a sum, and after a sum that didn't end.
    bool healthy_ = true;
};

} // namespace optpipe::mpi
