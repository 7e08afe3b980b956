#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/execution/transfer_probe.hpp"
#include "optpipe/online/controller.hpp"
#include "optpipe/online/online_state.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/room_for_plans.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace optpipe {

/// Runs the training of one rank, measures its steps, and switches to better plans.
///
/// Every `measure_every` steps, each rank reports the times of its instructions to rank 0. On rank 0, an
/// `online_controller` maintains the costs, plans in the background, and publishes better plans. All ranks switch
/// between the same two steps (`handover`). Before some steps, ranks probe transfers outside the plan (`probe_rounds`).
/// On rank 0, `step` also compares costs. On other ranks, `step` only runs the step.
///
/// Contract: the contract of `handover` applies. All ranks have the same problem, schedule, setting and options. The
/// executor records times.
template <class Executor, class Model, execution::control_channel Channel> class online_run {
public:
    /// Starts with `first`, a valid schedule of the problem. The arenas have the sizes in `room`, or larger sizes if
    /// `first` needs larger arenas. The default of `room` is `room_for_plans`. Plans that need larger arenas are
    /// refused.
    online_run(const problem& p, const schedule& first, Executor& on, Model& model, Channel& channel,
               const online_setting& setting, const online_options& options = {},
               const std::optional<execution::arena_sizes>& room = {})
        : executor_{&on}, state_{p, first, on.self(), setting, options},
          handover_{state_.program(on.self()),
                    on,
                    model,
                    channel,
                    [this](const std::string& plan) { return state_.programs_of(plan); },
                    room ? *room : room_for_plans(p, on.self(), setting.lowering)} {}
    online_run(const online_run&) = delete;
    online_run& operator=(const online_run&) = delete;

    /// Runs one step. After the step, switches to a better plan if all ranks are ready for it. Throws the exceptions of
    /// `handover::step`.
    void step() {
        const bool measured = state_.measures_next();
        const auto before = handover_.settled();
        handover_.forget_times();
        const auto begin = clock::now();
        auto ended = begin;
        const auto probed = begin_probe();
        handover_.step([&] {
            ended = clock::now();
            if (measured) handover_.report(state_.report_of(handover_.version(), handover_.times()));
            if (!probed) return;
            if (const auto took = probe_->times()) handover_.report(state_.report_of(*probed, *took));
        });
        const std::chrono::duration<double> took = ended - begin;
        const std::chrono::duration<double> exchange = clock::now() - ended;
        state_.end_step(took.count(), exchange.count(),
                        handover_.settled() > before ? &handover_.last_result() : nullptr);
        if (!state_.controller()) return;
        while (const auto told = handover_.next_report())
            state_.take_report(*told, handover_.version());
        if (const auto plan = state_.next_plan()) handover_.publish(*plan);
    }

    [[nodiscard]] std::uint64_t steps() const { return state_.steps(); }
    /// Number of the plan that the next step runs. The number is the same on all ranks, and 0 at first.
    [[nodiscard]] std::uint64_t version() const { return handover_.version(); }
    /// The decisions of rank 0 and their log; null on all ranks except rank 0.
    [[nodiscard]] const online_controller* controller() const { return state_.controller(); }

private:
    using clock = std::chrono::steady_clock;

    /// Starts the probe before this step, and returns the offload of the probed stash. If there is nothing to probe,
    /// returns nothing.
    std::optional<operation> begin_probe() {
        const auto what = state_.next_probe(handover_.program());
        if (!what || !can_probe_) return std::nullopt;
        try {
            if (!probe_) probe_.emplace(*executor_);
        } catch (const std::exception&) {
            can_probe_ = false; // training goes on without probes, because there is no lane for them
            return std::nullopt;
        }
        return handover_.probe(*probe_, what->offload, state_.bytes_of(*what)) ? std::optional{what->offload}
                                                                               : std::nullopt;
    }

    Executor* executor_;
    bool can_probe_ = true;
    detail::online_state state_;
    handover<Executor, Model, Channel> handover_;
    /// Created before the first probe. The probe is destroyed before the arenas, whose memory it uses.
    std::optional<execution::transfer_probe<Executor>> probe_{};
};

} // namespace optpipe
