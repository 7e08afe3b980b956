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

/// A rank that is a process. Lanes are threads, buffers are in CPU memory, and MPI carries the messages. Only the
/// thread that issues may use an executor.
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

/// One rank of a communicator. The caller keeps the communicator. This class sends only on a duplicate of the
/// communicator. All processes must construct and destroy their `member` at the same time. The destructor waits for the
/// other processes for at most `patience`. A rank that leaves by an exception ends the run of all ranks.
///
/// If any rank fails, `finish` throws on all ranks. Failures are exceptions, failed allocations, missing or wrong
/// messages, and lost processes. The error has the rank, the operation and the reason of the first failure. The error
/// also names the ranks that no longer answer. All ranks give the same reason, unless rank 0 is gone. A launcher may
/// end the job before ranks report a failure (see Open MPI's `--enable-recovery`).
class member {
public:
    explicit member(MPI_Comm among, const options& how = {}) : control_{among, how} {}
    /// Reports lost ranks to the session, which then doesn't wait for them.
    explicit member(session& of, const options& how = {}) : control_{of, how} {}
    [[nodiscard]] mpi::executor& executor() { return executor_; }
    /// The rank's control channel. A failure of the channel or the executor makes both unusable on all ranks.
    [[nodiscard]] threads::control_channel& control() { return control_.channel(); }

private:
    mpi::control control_;
    mpi::executor executor_{control_.world(), control_.office(), control().self()};
};

} // namespace optpipe::mpi
