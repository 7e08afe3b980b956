#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/pipeline_rank.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// Options for running a pipeline.
struct pipeline_options {
    /// Bytes per unit of memory in the report, as in `lowering_options`.
    double bytes_per_unit = 1.0;
    /// Duration of the problem's unit of time, for the measured schedule.
    clock_time time_unit = std::chrono::milliseconds{1};
    /// Whether each operation takes at least its planned time. If true, a step takes as long as planned.
    bool paced = false;
    std::chrono::nanoseconds patience = std::chrono::minutes{1};
};

/// The result of one step of a pipeline.
struct step_result {
    /// Mean loss over the microbatches.
    double loss = 0.0;
    /// The operations with their measured times.
    schedule measured;
};

/// Runs the ranks of a pipeline in this process, with one thread per lane.
class thread_ranks : public threads::cluster {
public:
    thread_ranks(const problem& p, const training&, const pipeline_options& how)
        : threads::cluster{p.graph.ranks(), {.patience = how.patience, .record_times = true}} {}
};

/// Trains a model according to a plan. Gradients are added to those already in the parameters. The caller's optimizer
/// runs between two steps. `Ranks` is `thread_ranks`, or `cuda_ranks` of `libtorch/cuda/pipeline.hpp`.
///
/// Stages that draw random numbers take turns at the shared generators. For bitwise repeatable sums on CPUs, first call
/// `at::set_num_threads(1)`.
template <class Ranks> class basic_pipeline {
public:
    /// Rehearses each stage once per storage option of the plan. `p` and `model` must outlive the pipeline. Throws
    /// `error` if the problem isn't plain. Throws `error` if the model has another number of stages, or can't split
    /// backwards as planned. Throws `input_error` if the programs have errors.
    basic_pipeline(const problem& p, per_rank<rank_program> programs, const training& model, pipeline_options how = {})
        : problem_{p}, model_{model}, how_{how}, ranks_{p, checked(p, programs, model), how},
          members_(p.graph.ranks()) {
        await_caller();
        const rank_options of_rank{how.bytes_per_unit, how.paced ? std::optional{how.time_unit} : std::nullopt};
        const auto values = std::make_shared<value_table>();
        threads::on_all_ranks(ranks_, [&](executor& here) {
            const rank r = here.self();
            members_[r.position()] =
                std::make_unique<member>(p, std::move(programs[r]), model, here, ranks_.control(r), of_rank, values);
        });
    }
    basic_pipeline(const basic_pipeline&) = delete;
    basic_pipeline& operator=(const basic_pipeline&) = delete;

    /// Runs a step, after the work in the current streams of the calling thread. Throws `execution_error` if the step
    /// fails. After a failure, the pipeline is unusable.
    step_result step() {
        await_caller();
        std::vector<rank_step> done(members_.size());
        threads::on_all_ranks(ranks_, [&](executor& here) {
            const auto r = here.self().position();
            done[r] = members_[r]->step();
        });
        step_result result{0.0, {problem_.graph, {}}};
        std::vector<rank_times> times;
        for (auto& each : done) {
            result.loss += each.loss.value_or(0.0);
            times.push_back(std::move(each.times));
        }
        result.measured = measured_schedule(problem_.graph, times, how_.time_unit);
        return result;
    }

    /// The sizes of the stashes in all steps run until now.
    [[nodiscard]] stash_report report() const {
        stash_report all;
        for (const auto& each : members_) {
            const auto own = each->report();
            all.ranks.insert(all.ranks.end(), own.ranks.begin(), own.ranks.end());
            all.stashes.insert(all.stashes.end(), own.stashes.begin(), own.stashes.end());
        }
        return all;
    }

private:
    using executor = std::remove_reference_t<decltype(std::declval<Ranks&>()[rank{}])>;
    using member = pipeline_rank<executor>;

    static const training& checked(const problem& p, const per_rank<rank_program>& programs, const training& model) {
        detail::check_training(p, programs, model);
        return model;
    }
    /// Waits for work in this thread's current streams, such as the optimizer's. The ranks' own streams don't wait for
    /// this thread's streams.
    void await_caller() const {
        for (const auto& each : model_.stages)
            synchronize(device_of(each));
    }

    const problem& problem_;
    const training& model_;
    pipeline_options how_;
    Ranks ranks_;
    std::vector<std::unique_ptr<member>> members_;
};

using pipeline = basic_pipeline<thread_ranks>;

} // namespace optpipe::libtorch
