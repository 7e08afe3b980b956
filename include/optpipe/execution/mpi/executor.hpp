#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/mpi/control.hpp"
#include "optpipe/execution/mpi/options.hpp"
#include "optpipe/execution/mpi/post_office.hpp"
#include "optpipe/execution/mpi/session.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/world.hpp"

#include <mpi.h>

namespace optpipe::mpi {

/// A rank that is a process. The rank's lanes are threads, its buffers are in CPU memory, and MPI carries its messages.
/// Only the thread that issues may use an executor.
class executor : private threads::executor {
public:
    executor(threads::world& of, post_office& by, rank self) : threads::executor{of, self}, by_{by} {}

    using threads::executor::cancel;
    using threads::executor::copies;
    using threads::executor::lane_type;
    using threads::executor::make_marker;
    using threads::executor::memory;
    using threads::executor::open_lane;
    using threads::executor::ranks;
    using threads::executor::self;
    using threads::executor::transport;

    void finish() {
        try {
            threads::executor::finish();
        } catch (const execution_error&) {
            throw by_.verdict();
        }
    }

private:
    post_office& by_;
};

static_assert(execution::check_executor<executor>());

/// One rank of a communicator. The caller keeps the communicator. This class duplicates the communicator, and sends
/// nothing on the original. All processes of the communicator must construct and destroy their `member` at the same
/// time. The destructor waits for the other processes for at most `patience`. A rank that leaves by an exception ends
/// the run of all ranks.
///
/// If any rank fails, `finish` throws on all ranks. Failures are exceptions, failed allocations, missing or wrong
/// messages, and processes that hang or are gone. The error has the rank, the operation and the reason of the first
/// failure that was reported to rank 0. The error also names the ranks that no longer answer. All ranks give the same
/// reason, unless rank 0 is gone. If a launcher ends the job as soon as one process dies, no process can report the
/// failure (see `--enable-recovery` of Open MPI).
class member {
public:
    explicit member(MPI_Comm among, const options& how = {}) : control_{among, how} {}
    /// Tells the session if a rank is lost, so that the session doesn't wait for that rank.
    explicit member(session& of, const options& how = {}) : control_{of, how} {}
    [[nodiscard]] mpi::executor& executor() { return executor_; }
    /// The rank's control channel. If a rank fails in its channel or in its executor, channel and executor become
    /// unusable on all ranks.
    [[nodiscard]] threads::control_channel& control() { return control_.channel(); }

private:
    mpi::control control_;
    mpi::executor executor_{control_.world(), control_.office(), control().self()};
};

} // namespace optpipe::mpi
