#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/options.hpp"
#include "optpipe/execution/mpi/post_office.hpp"
#include "optpipe/execution/mpi/session.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/world.hpp"

#include <mpi.h>

#include <cstddef>
#include <exception>

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
    explicit member(MPI_Comm among, const options& how = {}) : member{among, how, nullptr} {}
    /// Tells the session if a rank is lost, so that it doesn't wait for it.
    explicit member(session& of, const options& how = {}) : member{of.world(), how, &of} {}
    member(const member&) = delete;
    member& operator=(const member&) = delete;
    ~member() {
        if (std::uncaught_exceptions() > exceptions_) executor_.cancel("outside of operations", "left by an exception");
        office_.leave();
        if (session_ && office_.has_lost_rank()) session_->lose_rank();
    }
    [[nodiscard]] mpi::executor& executor() { return executor_; }
    /// A rank that fails, here or in its executor, ends both on all ranks.
    [[nodiscard]] threads::control_channel& control() { return office_.control(); }

private:
    struct place {
        rank self;
        std::size_t ranks;
    };
    static place place_in(MPI_Comm among) {
        check_thread_level();
        int self = 0;
        int ranks = 0;
        check(MPI_Comm_rank(among, &self), "MPI_Comm_rank");
        check(MPI_Comm_size(among, &ranks), "MPI_Comm_size");
        return {rank{self}, static_cast<std::size_t>(ranks)};
    }
    member(MPI_Comm among, const options& how, session* of) : member{among, how, of, place_in(among)} {}
    member(MPI_Comm among, const options& how, session* of, const place& here)
        : session_{of}, world_{here.ranks, detail::lane_options(how, here.self, here.ranks), office_},
          office_{among, how.patience, world_}, executor_{world_, office_, here.self} {}

    session* session_;
    int exceptions_ = std::uncaught_exceptions();
    threads::world world_;
    post_office office_;
    mpi::executor executor_;
};

} // namespace optpipe::mpi
