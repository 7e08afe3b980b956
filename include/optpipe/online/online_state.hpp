#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/transfer_probe.hpp"
#include "optpipe/online/controller.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/probe_rounds.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace optpipe {

/// How plans become programs. The setting is the same on all ranks.
struct online_setting {
    lowering_options lowering{};
    /// Duration of the problem's time unit.
    clock_time time_unit{};
};

namespace detail {

/// The state and decisions of `online_run` that don't depend on executor, model and channel.
class online_state {
public:
    online_state(const problem& p, const schedule& first, rank self, const online_setting& setting,
                 const online_options& options);
    online_state(const online_state&) = delete;
    online_state& operator=(const online_state&) = delete;

    /// The current program of a rank.
    [[nodiscard]] const rank_program& program(rank r) const { return programs_[r]; }
    /// The programs of all ranks for a plan. Called by the handover's thread, for one plan at a time.
    [[nodiscard]] per_rank<rank_program> programs_of(const std::string& plan);

    [[nodiscard]] std::uint64_t steps() const { return steps_; }
    /// Whether the next step is measured.
    [[nodiscard]] bool measures_next() const;
    /// A rank's report with the instruction times of this step.
    [[nodiscard]] std::string report_of(std::uint64_t version, std::vector<execution::task_times> times) const;
    /// Returns the transfer that this rank probes before the next step, if any.
    [[nodiscard]] std::optional<planned_probe> next_probe(const rank_program& in_use);
    [[nodiscard]] std::size_t bytes_of(const planned_probe& what) const;
    /// A rank's report on a probe that has ended.
    [[nodiscard]] std::string report_of(const operation& what, const execution::probed_transfer& took);
    /// Reports the end of a step. If `result` isn't null, a handover followed the step. `seconds` is the duration of
    /// the step alone, and `exchange_seconds` is the duration of the handover.
    void end_step(double seconds, double exchange_seconds, const handover_result* result);

    /// The controller; null on all ranks except rank 0.
    [[nodiscard]] const online_controller* controller() const { return controller_.get(); }
    /// On rank 0, takes a report about a probe, or about a step of the program version `version`. A step is compared
    /// once all ranks have reported it.
    void take_report(const execution::rank_text& told, std::uint64_t version);
    /// Returns the plan to publish, if any. Called on rank 0.
    [[nodiscard]] std::optional<std::string> next_plan();

private:
    [[nodiscard]] duration in_units(std::chrono::nanoseconds time) const {
        return duration{clock_time{time} / setting_.time_unit};
    }

    online_setting setting_;
    std::size_t measure_every_;
    bool costs_are_measured_;
    any_graph graph_;
    probe_rounds rounds_;
    std::mutex mutex_{};
    /// The current programs of all ranks, and the programs of the last plan. The mutex guards `next_programs_`.
    per_rank<rank_program> programs_;
    per_rank<rank_program> next_programs_{};
    std::uint64_t steps_ = 0;
    /// The reported times of each step.
    std::map<std::uint64_t, std::vector<rank_times>> measured_{};
    std::unique_ptr<online_controller> controller_{};
};

} // namespace detail
} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/error.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/online/plan_text.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/program/lower.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace optpipe {

namespace detail {

OPTPIPE_INLINE online_state::online_state(const problem& p, const schedule& first, rank self,
                                          const online_setting& setting, const online_options& options)
    : setting_{setting}, measure_every_{std::max<std::size_t>(1, options.measure_every)},
      costs_are_measured_{options.costs_are_measured}, graph_{p.graph}, rounds_{p, first, self, options.probe_share,
                                                                                options.least_probed_change},
      programs_{lower(p, first, setting.lowering).value()} {
    OPTPIPE_EXPECT(setting.time_unit > clock_time{}, "online_setting: time_unit is above 0");
    require_plain_without_pairs(p, "training is planned again");
    if (self == rank{0}) controller_ = std::make_unique<online_controller>(p, first, options);
}
OPTPIPE_INLINE per_rank<rank_program> online_state::programs_of(const std::string& plan) {
    auto made = programs_from_text(plan, setting_.lowering);
    const std::scoped_lock lock{mutex_};
    next_programs_ = made;
    return made;
}
OPTPIPE_INLINE bool online_state::measures_next() const { return steps_ % measure_every_ == 0; }
OPTPIPE_INLINE std::string online_state::report_of(std::uint64_t version,
                                                   std::vector<execution::task_times> times) const {
    return times_to_text({steps_, version, std::move(times)});
}
OPTPIPE_INLINE std::optional<planned_probe> online_state::next_probe(const rank_program& in_use) {
    return rounds_.next(steps_, in_use);
}
OPTPIPE_INLINE std::size_t online_state::bytes_of(const planned_probe& what) const {
    return static_cast<std::size_t>(std::llround(what.size.value() * setting_.lowering.bytes_per_unit));
}
OPTPIPE_INLINE std::string online_state::report_of(const operation& what, const execution::probed_transfer& took) {
    const auto out = took.offload.end - took.offload.start;
    const auto in = took.reload.end - took.reload.start;
    rounds_.took(steps_, what, {in_units(out), in_units(in)});
    return probe_to_text({steps_, what, out, in});
}
OPTPIPE_INLINE void online_state::end_step(double seconds, double exchange_seconds, const handover_result* result) {
    ++steps_;
    if (result && result->accepted) {
        const std::scoped_lock lock{mutex_};
        std::swap(programs_, next_programs_);
        measured_.clear();
    }
    if (!controller_) return;
    controller_->add_step(seconds);
    if (result) controller_->settled(result->accepted, result->refusals, exchange_seconds);
}
OPTPIPE_INLINE void online_state::take_report(const execution::rank_text& text, std::uint64_t version) {
    if (const auto probe = probe_from_text(text.text))
        return controller_->add_probe(probe->step, probe->offload, {in_units(probe->out), in_units(probe->in)});
    auto told = times_from_text(text.text);
    if (told.version != version) return;
    if (told.times.size() != programs_[text.from].instructions.size())
        throw error{"online run: rank " + std::to_string(text.from.value()) + " measured " +
                    std::to_string(told.times.size()) + " of " +
                    std::to_string(programs_[text.from].instructions.size()) +
                    " instructions: its executor has to record times"};
    auto& by_rank = measured_[told.step];
    by_rank.push_back({&programs_[text.from], std::move(told.times)});
    if (by_rank.size() < programs_.size()) return;
    controller_->add_measured(told.step, measured_schedule(graph_, by_rank, setting_.time_unit),
                              message_times(controller_->present_problem(), by_rank, setting_.time_unit));
    measured_.erase(measured_.begin(), measured_.upper_bound(told.step));
}
OPTPIPE_INLINE std::optional<std::string> online_state::next_plan() {
    // If the costs are guesses, no plan is published before the first probes of all stages. The results of a probe
    // arrive with the next step.
    if (!costs_are_measured_ && steps_ <= rounds_.first_steps()) return std::nullopt;
    const auto plan = controller_->next_plan();
    return plan ? std::optional{plan_to_text(*plan)} : std::nullopt;
}

} // namespace detail
} // namespace optpipe
#endif
