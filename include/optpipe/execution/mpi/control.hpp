#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/failure_channel.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/options.hpp"
#include "optpipe/execution/mpi/post_office.hpp"
#include "optpipe/execution/mpi/session.hpp"
#include "optpipe/execution/threads/world.hpp"

#include <mpi.h>

#include <cstddef>
#include <exception>
#include <optional>

namespace optpipe::mpi {

/// One rank's control channel over MPI. NCCL's executor reports failures to other processes through a `control`
/// (`cuda::options::failures`). A `member` already has a control channel.
///
/// The caller keeps the communicator. This class sends only on a duplicate of the communicator. All processes must
/// construct and destroy their `control` at the same time. The destructor waits for the other processes for at most
/// `patience`. A rank that leaves by an exception ends the run of all ranks. Other ranks notice a lost process in
/// `minimum`, or when they wait for its text.
class control final : public execution::failure_channel {
public:
    explicit control(MPI_Comm among, const options& how = {}) : control{among, how, nullptr} {}
    /// Reports lost ranks to the session, which then doesn't wait for them.
    explicit control(session& of, const options& how = {}) : control{of.world(), how, &of} {}
    control(const control&) = delete;
    control& operator=(const control&) = delete;
    ~control() {
        if (std::uncaught_exceptions() > exceptions_) channel().cancel("outside of operations", "left by an exception");
        office_.leave();
        if (session_ && office_.has_lost_rank()) session_->lose_rank();
    }

    [[nodiscard]] threads::control_channel& channel() { return office_.control(); }
    void tell(const execution_error& what) override {
        world_.failed.report(what.rank(), what.operation(), what.reason());
    }
    [[nodiscard]] std::optional<execution_error> failure() const override {
        if (!world_.failed.happened().load()) return std::nullopt;
        return world_.failed.what();
    }

    // For use by `member`.

    [[nodiscard]] threads::world& world() { return world_; }
    [[nodiscard]] post_office& office() { return office_; }

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
    control(MPI_Comm among, const options& how, session* of) : control{among, how, of, place_in(among)} {}
    control(MPI_Comm among, const options& how, session* of, const place& here)
        : session_{of}, world_{here.ranks, detail::lane_options(how, here.self, here.ranks), office_},
          office_{among, how.patience, world_} {}

    session* session_;
    int exceptions_ = std::uncaught_exceptions();
    threads::world world_;
    post_office office_;
};

} // namespace optpipe::mpi
