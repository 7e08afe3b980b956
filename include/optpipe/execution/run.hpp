#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/bound_program.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane_pool.hpp"
#include "optpipe/execution/loaded_program.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/transfer_probe.hpp"
#include "optpipe/program/ir.hpp"

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// Runs one rank's program on an executor, step after step. The constructor does all look-ups and allocations. During a
/// step, the calling thread only issues instructions. Between two steps, another program can use the same arenas
/// (`bind`, `load`, `replace`).
///
/// Contract: `check_programs` accepts the programs of all ranks together. All ranks run programs of the same plan in a
/// step. Executor and model outlive the runner.
template <class Executor, class Model> class runner {
    static_assert(execution::check_executor<Executor>());
    using lane_type = execution::lane_of<Executor>;
    static_assert(execution::check_stage_model<Model, lane_type>());

public:
    using loaded_program = execution::loaded_program<Executor, Model>;

    /// Allocates memory, lanes and markers. Each arena of the library has the larger of the program's size and the size
    /// in `room`. If an allocation fails, the constructors of all ranks throw.
    runner(const rank_program& p, Executor& on, Model& model, const execution::arena_sizes& room = {},
           const execution::buffer_owners& owners = {}) try
        : executor_{&on}, model_{&model}, arenas_{on, largest(execution::sizes_of(p), room), owners}, lanes_{on} {
        program_ = load(bind(p));
    } catch (...) {
        on.cancel("loading its program", caught_reason());
        on.finish(); // throws the same error on all ranks
        throw;
    }
    runner(const runner&) = delete;
    runner& operator=(const runner&) = delete;

    /// Binds another program of this rank to addresses in the arenas. Throws `error` if `p` is for another rank, needs
    /// larger arenas, or needs functions that the model lacks. Any thread may call `bind`.
    [[nodiscard]] execution::bound_program bind(const rank_program& p) const {
        if (p.self != executor_->self() || p.ranks != executor_->ranks())
            throw error{"a program of rank " + std::to_string(p.self.value()) + " of " + std::to_string(p.ranks) +
                        " can't run on rank " + std::to_string(executor_->self().value()) + " of " +
                        std::to_string(executor_->ranks())};
        for (const auto& i : p.instructions)
            check_model(i);
        return {p, arenas_.memory()};
    }
    /// Prepares `p` to run on the lanes and markers of the current program. Opens more lanes and markers if `p` needs
    /// more. Must be called between two steps. Throws the executor's exceptions.
    [[nodiscard]] std::unique_ptr<loaded_program> load(execution::bound_program p) {
        return std::make_unique<loaded_program>(std::move(p), *executor_, *model_, lanes_);
    }
    /// Makes `next` the program of the next step, and returns the previous program. Must be called between two steps.
    std::unique_ptr<loaded_program> replace(std::unique_ptr<loaded_program> next) noexcept {
        return std::exchange(program_, std::move(next));
    }

    /// Before the next step, moves `bytes` to the host and back, and measures the transfers. The measured times have
    /// the label `what`. If the arenas are too small or belong to the training engine, returns false and does nothing.
    /// Must be called between two steps.
    bool probe(execution::transfer_probe<Executor>& by, const operation& what,
               std::size_t bytes) requires execution::timed_lane<lane_type> {
        if (!by.is_possible(arenas_.memory(), bytes)) return false;
        by.issue(what, arenas_.memory(), bytes);
        program_->wait(by.done());
        return true;
    }

    /// Puts one step into the lanes, without waiting for it. The executor must finish between two steps, because the
    /// lanes don't order steps.
    void issue() { program_->issue(); }
    /// Runs one complete step. Throws `execution_error` if the step can't be completed.
    void step() {
        try {
            issue();
        } catch (...) {
            executor_->cancel("issuing", caught_reason());
            executor_->finish(); // throws the same error on all ranks
            throw;
        }
        executor_->finish();
    }

    /// Times of the instructions since the last `forget_times`, in the order of the program. Must be called after one
    /// complete step.
    [[nodiscard]] std::vector<execution::task_times> times() const requires execution::timed_lane<lane_type> {
        return program_->times();
    }
    void forget_times() requires execution::timed_lane<lane_type> { program_->forget_times(); }

private:
    static void check_model(const instruction& i) {
        const bool is_forward = i.op.kind == operation_kind::forward && i.kind == instruction_kind::compute;
        if (execution::forward_only_model<Model> && !is_forward && i.kind != instruction_kind::exchange)
            throw error{"a program with backwards, and a model of forwards alone"};
        if (i.is_pair() && !execution::has_overlap<Model, lane_type>)
            throw error{"a program with pairs, and a model without `void overlap(lane&, const forward_task&, const "
                        "backward_task&)`"};
        if (i.kind == instruction_kind::update && !execution::has_update<Model, lane_type>)
            throw error{"a program with updates, and a model without `void update(lane&, stage)`"};
        if (i.kind == instruction_kind::reduce && !execution::has_reduce<Model, lane_type>)
            throw error{"a program with reductions, and a model without `void reduce(lane&, stage)`"};
        const bool recomputes = i.kind == instruction_kind::compute && i.op.kind == operation_kind::recompute;
        if (recomputes && !execution::has_recompute<Model, lane_type>)
            throw error{
                "a program that recomputes, and a model without `void recompute(lane&, const recompute_task&)`"};
    }

    Executor* executor_;
    Model* model_;
    // Lanes are destroyed first, because they use the program and the memory.
    execution::arenas<Executor> arenas_;
    std::unique_ptr<loaded_program> program_; // nvcc 13.0 aborts on an initializer here, because the constructor has a
                                              // try block
    execution::lane_pool<Executor> lanes_;
};

/// Runs one step of one rank. To run several steps, use a `runner`.
template <class Executor, class Model> void run(const rank_program& p, Executor& on, Model& model) {
    runner<Executor, Model>{p, on, model}.step();
}

} // namespace optpipe
