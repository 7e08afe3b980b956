#pragma once

#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe::libtorch {

/// Moves the tensors of a stash between the device and the host. The label of the task identifies the stash.
template <class Lane> class copy_engine {
public:
    explicit copy_engine(rank_model& of) : of_{&of} {}
    void copy(Lane& on, execution::copy_direction, const task_label& label, execution::copy_pieces) const {
        on.launch(label, work{of_, label.op});
    }

private:
    struct work {
        rank_model* of;
        operation op;
        void operator()(Lane& on) const { of->copy(on, op); }
    };
    rank_model* of_;
};

/// A rank that uses LibTorch's tensors in place of arenas. `Base` is `threads::executor`, `mpi::executor` or
/// `cuda::executor`. `Base` runs the rank's lanes, and carries the rank's messages.
template <class Base> class executor {
public:
    using lane_type = execution::lane_of<Base>;

    executor(Base& by, rank_model& model) : by_{by}, copies_{model} {}

    [[nodiscard]] rank self() const { return by_.self(); }
    [[nodiscard]] std::size_t ranks() const { return by_.ranks(); }
    [[nodiscard]] lane_type open_lane(lane_kind kind, std::size_t commands) { return by_.open_lane(kind, commands); }
    [[nodiscard]] execution::marker_of<Base> make_marker() { return by_.make_marker(); }
    [[nodiscard]] copy_engine<lane_type>& copies() { return copies_; }
    [[nodiscard]] auto& transport() { return by_.transport(); }
    [[nodiscard]] auto& memory() { return by_.memory(); }
    void finish() { by_.finish(); }
    void cancel(std::string_view what_it_did, std::string_view reason) { by_.cancel(what_it_did, reason); }

private:
    Base& by_;
    copy_engine<lane_type> copies_;
};
static_assert(execution::check_executor<executor<threads::executor>>());
static_assert(execution::check_stage_model<rank_model, threads::lane>());

} // namespace optpipe::libtorch
