#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/libtorch/executor.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/options.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// How to lower a plan of a problem whose unit of memory is a byte, such as a problem of `measured_problem`. Sizes
/// aren't rounded, because LibTorch allocates them.
[[nodiscard]] inline lowering_options lowering_defaults() { return {.bytes_per_unit = 1.0, .alignment = 1}; }

/// How a pipeline runs.
struct pipeline_options {
    /// Bytes per unit of memory, as in `lowering_options`; used for the report.
    double bytes_per_unit = 1.0;
    /// Length of the problem's unit of time, for the measured schedule.
    clock_time time_unit = std::chrono::milliseconds{1};
    std::chrono::nanoseconds patience = std::chrono::minutes{1};
};

/// One step of a pipeline.
struct step_result {
    /// Mean over the microbatches.
    double loss = 0.0;
    /// The operations with their measured times.
    schedule measured;
};

/// Trains a model by a plan, with a thread for each lane of each rank. Gradients are added to those in the parameters;
/// the caller's optimizer runs between two steps.
///
/// Stages that draw random numbers take turns on one device, because they share its generator. For bitwise repeatable
/// sums, call `at::set_num_threads(1)` before the first step.
class pipeline {
public:
    /// Rehearses each stage once with each storage option of the plan. `p` and `model` outlive the pipeline. Throws
    /// `error` for problems that aren't plain, if the model has another number of stages than the problem, or if the
    /// plan splits backwards and the model can't. Throws `input_error` if the programs have errors.
    pipeline(const problem& p, per_rank<rank_program> programs, const training& model, pipeline_options how = {})
        : problem_{p}, model_{model}, programs_{checked(p, std::move(programs), model)}, how_{how},
          ranks_{p.graph.ranks(), {.patience = how.patience, .record_times = true}} {
        for (const rank r : p.graph.all_ranks())
            models_.push_back(std::make_unique<rank_model>(p, model, r, how.bytes_per_unit, values_));
        rehearse();
        constexpr execution::buffer_owners owners{execution::buffer_owner::engine, execution::buffer_owner::engine};
        for (const rank r : p.graph.all_ranks()) {
            auto& own = *models_[r.position()];
            executors_.push_back(std::make_unique<executor>(ranks_[r], own));
            runners_.push_back(std::make_unique<runner<executor, rank_model>>(programs_[r], *executors_.back(), own,
                                                                              execution::arena_sizes{}, owners));
        }
    }
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    /// Runs a step. Throws `execution_error` if the step fails; the pipeline is unusable after a failure.
    step_result step() {
        for (const auto& each : models_)
            each->begin_step(steps_);
        threads::on_all_ranks(ranks_, [&](threads::executor& here) {
            auto& own = *runners_[here.self().position()];
            own.forget_times();
            own.step();
        });
        ++steps_;
        std::vector<rank_times> times;
        for (const rank r : problem_.graph.all_ranks())
            times.push_back({&programs_[r], runners_[r.position()]->times()});
        return {mean_loss(), measured_schedule(problem_.graph, times, how_.time_unit)};
    }

    /// The sizes of the stashes in the steps so far.
    [[nodiscard]] stash_report report() const {
        stash_report all;
        for (const auto& program : programs_) {
            auto& own = *models_[program.self.position()];
            all.ranks.push_back({program.self,
                                 {program.device_bytes, own.meters().device.most()},
                                 {program.host_bytes, own.meters().host.most()}});
            for (auto& each : own.stashes())
                all.stashes.push_back(std::move(each));
        }
        return all;
    }

private:
    static per_rank<rank_program> checked(const problem& p, per_rank<rank_program> programs, const training& model) {
        require_plain(p, "LibTorch runs a plan");
        if (model.stages.size() != p.graph.stages())
            throw error{"a model of " + std::to_string(model.stages.size()) + " stages in a pipeline of " +
                        std::to_string(p.graph.stages())};
        if (programs.size() != p.graph.ranks())
            throw error{std::to_string(programs.size()) + " programs for " + std::to_string(p.graph.ranks()) +
                        " ranks"};
        if (auto found = check_programs(programs); !found.empty()) throw input_error{"programs", std::move(found)};
        if (!model.splits_backward && has_split_backwards(programs))
            throw error{"a plan with split backwards for a model without: plan with problem::split_backward = false"};
        return programs;
    }
    static bool has_split_backwards(const per_rank<rank_program>& programs) {
        for (const auto& program : programs)
            for (const auto& each : program.instructions)
                if (each.kind == instruction_kind::compute && each.op.kind == operation_kind::backward_input)
                    return true;
        return false;
    }
    void rehearse() {
        per_stage<std::set<storage_index>> used(problem_.graph.stages());
        for (const auto& program : programs_)
            for (const auto& each : program.instructions)
                if (each.kind == instruction_kind::compute && each.op.kind == operation_kind::forward)
                    used[each.op.stage].insert(each.op.storage);
        auto values = model_.input(0, microbatch{});
        for (const stage s : problem_.graph.all_stages()) {
            auto& own = *models_[problem_.rank_of(s).position()];
            tensors outputs;
            for (const auto how : used[s])
                outputs = own.rehearse(s, values, how).outputs;
            values = std::move(outputs);
        }
        for (const auto& each : models_)
            for (auto* const meter : {&each->meters().device, &each->meters().host})
                meter->forget_most();
    }
    [[nodiscard]] double mean_loss() const {
        double sum = 0.0;
        for (const auto& each : models_)
            for (const auto& loss : each->losses())
                sum += loss.item<double>();
        return sum / static_cast<double>(problem_.graph.microbatches());
    }

    const problem& problem_;
    const training& model_;
    per_rank<rank_program> programs_;
    pipeline_options how_;
    threads::cluster ranks_;
    value_table values_{};
    std::vector<std::unique_ptr<rank_model>> models_{};
    std::vector<std::unique_ptr<executor>> executors_{};
    /// The runners are destroyed first, because their lanes use all of the above.
    std::vector<std::unique_ptr<runner<executor, rank_model>>> runners_{};
    std::size_t steps_ = 0;
};

} // namespace optpipe::libtorch
