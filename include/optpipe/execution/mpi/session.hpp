#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <string>

namespace optpipe::mpi {

/// The name of a thread level, such as "MPI_THREAD_MULTIPLE".
[[nodiscard]] inline std::string spelling_of_level(int level) {
    if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
    if (level == MPI_THREAD_FUNNELED) return "MPI_THREAD_FUNNELED";
    if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
    return "MPI_THREAD_MULTIPLE";
}

/// Throws unless threads of this library may call MPI. With MPI_THREAD_SERIALIZED, the caller must not use MPI while a
/// `member` exists. With MPI_THREAD_MULTIPLE, the caller may use MPI at any time.
inline void check_thread_level() {
    int initialized = 0;
    check(MPI_Initialized(&initialized), "MPI_Initialized");
    if (!initialized) throw optpipe::error{"MPI isn't initialised: make an mpi::session, or call MPI_Init_thread"};
    int level = MPI_THREAD_SINGLE;
    check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_SERIALIZED)
        throw optpipe::error{"MPI was initialised with " + spelling_of_level(level) +
                             "; it has to be MPI_THREAD_MULTIPLE, or MPI_THREAD_SERIALIZED at least"};
}

/// Initialises and finalises MPI. If MPI is already initialised, the session does nothing.
class session {
public:
    session() {
        int initialized = 0;
        check(MPI_Initialized(&initialized), "MPI_Initialized");
        if (initialized) return;
        int level = MPI_THREAD_SINGLE;
        check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
        owns_ = true;
    }
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() {
        int finalized = 0;
        if (owns_ && !lost_ && MPI_Finalized(&finalized) == MPI_SUCCESS && !finalized)
            static_cast<void>(MPI_Finalize());
    }

    [[nodiscard]] MPI_Comm world() const { return MPI_COMM_WORLD; }
    /// Whether this session initialised MPI, and will finalise it.
    [[nodiscard]] bool owns() const { return owns_; }

    /// Announces that a rank is gone. The process ends without MPI_Finalize, which would wait for the lost rank. The
    /// launcher ends the remaining processes.
    void lose_rank() noexcept { lost_ = true; }
    [[nodiscard]] bool has_lost_rank() const { return lost_; }

private:
    bool owns_ = false;
    bool lost_ = false;
};

} // namespace optpipe::mpi
