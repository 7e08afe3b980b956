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

/// One rank that is a process: lanes that are threads, buffers of the CPU, messages by MPI. For one thread, the one
/// that issues.
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

/// One rank of those in a communicator, which is borrowed: it is copied, and nothing is sent on it. All its processes
/// make theirs at the same time, and leave at the same time: the destructor waits for the others, as long as its
/// patience lasts. Who leaves by an exception ends the run for all.
///
/// What goes wrong on any rank (an exception, memory that isn't there, a message that doesn't come, or another one than
/// planned, a process that hangs or is gone) is thrown by `finish` on all of them: rank, operation and reason are those
/// that rank 0 heard of first, and who doesn't answer any more is named. Only if rank 0 itself is gone may ranks tell
/// different reasons. A launcher that ends the job with the first process that dies leaves nobody to tell: see
/// `--enable-recovery` of Open MPI's.
class member {
public:
    explicit member(MPI_Comm among, const options& how = {}) : control_{among, how} {}
    /// Tells the session if a rank is lost, so that it doesn't wait for it.
    explicit member(session& of, const options& how = {}) : control_{of, how} {}
    [[nodiscard]] mpi::executor& executor() { return executor_; }
    /// A rank that fails, here or in its executor, ends both on all ranks.
    [[nodiscard]] threads::control_channel& control() { return control_.channel(); }

private:
    mpi::control control_;
    mpi::executor executor_{control_.world(), control_.office(), control().self()};
};

} // namespace optpipe::mpi
