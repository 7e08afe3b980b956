#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/online/plan_text.hpp"
#include "optpipe/online/step_planner.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/background_planner.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace optpipe {

/// How plans become programs, and the room for them. The setting is the same on all ranks, except for `room`.
struct step_setting {
    lowering_options lowering{};
    /// The sizes of this rank's arenas. Every step's plan must fit: see `room_for_plans`.
    execution::arena_sizes room{};
    /// How rank 0 plans.
    background_options planning = step_planner::usual_options();
};

/// Runs one rank in training whose microbatches differ from step to step. During each step, rank 0 plans the next step
/// (`step_planner`). Between two steps, all ranks switch to the plan of the next step:
///
///     step_run run{p, first, executor, model, channel, setting}; // `first` is a plan of the first step, `p`
///     for (std::size_t i = 0; i < steps; ++i) {
///         if (executor.self() == rank{0}) run.submit(next); // the problem of step i + 1
///         run.step();
///         run.switch_plan(); // from now on, the model gets the microbatches of step i + 1
///     }
///
/// The ranks vote on each plan, and run the plan only if all ranks can (`handover`). `switch_plan` throws on all ranks
/// if a rank can't run the plan: the plan in use is for other microbatches. Costs aren't measured.
///
/// Contract: the contract of `handover` applies to `step_run`, too, with `switch_plan` in place of `settle_plan`. All
/// ranks have the same first problem and plan. The problems of all steps have the same stages and the same number of
/// microbatches. Planning must end before the channel's time limit for a vote.
template <class Executor, class Model, execution::control_channel Channel> class step_run {
public:
    step_run(const problem& p, const schedule& first, Executor& on, Model& model, Channel& channel,
             step_setting setting)
        : self_{on.self()}, handover_{lower(p, first, setting.lowering).value()[self_],
                                      on,
                                      model,
                                      channel,
                                      [how = setting.lowering](const std::string& plan) {
                                          return detail::programs_from_text(plan, how);
                                      },
                                      setting.room} {
        if (self_ == rank{0}) planner_ = std::make_unique<step_planner>(first, std::move(setting.planning));
    }
    step_run(const step_run&) = delete;
    step_run& operator=(const step_run&) = delete;

    /// On rank 0, begins to plan the next step. Call `submit` before `step`, to plan during the training.
    void submit(problem next) {
        OPTPIPE_EXPECT(planner_, "step_run: rank 0 submits problems");
        planner_->submit(std::move(next));
    }
    /// Runs one step with the plan in use. Throws the exceptions of `handover::step`.
    void step() { handover_.step(); }
    /// Switches all ranks to the plan of the submitted problem. Waits until there is a plan and all ranks are ready for
    /// the plan. Throws `error` on all ranks if there is no plan, or if a rank refuses the plan. On rank 0, the error
    /// has the reasons. Throws `execution_error` in the same cases as `handover::step`. Contract: rank 0 has submitted
    /// a problem since the last call.
    void switch_plan() {
        std::string why;
        if (planner_) handover_.publish(next_plan(why));
        const auto& result = handover_.settle_plan();
        if (result.accepted) return;
        for (const auto& each : result.refusals)
            why += (why.empty() ? ": " : "; ") + each;
        throw error{"plan " + std::to_string(result.version) + " of a step isn't run" + why};
    }

    /// Number of the plan that the next step runs, from 0. All ranks have the same number.
    [[nodiscard]] std::uint64_t version() const { return handover_.version(); }

private:
    /// The plan as a text. Without a plan, returns a text that all ranks refuse, and sets `why` to the reason.
    std::string next_plan(std::string& why) {
        try {
            return detail::plan_to_text(planner_->next_plan());
        } catch (...) { // all ranks must hear of the error
            why = ": " + caught_reason();
            return {};
        }
    }

    rank self_;
    handover<Executor, Model, Channel> handover_;
    /// Null on all ranks but rank 0.
    std::unique_ptr<step_planner> planner_{};
};

} // namespace optpipe
