#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/transfer_probe.hpp"
#include "optpipe/online/controller.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/online/plan_text.hpp"
#include "optpipe/online/probe_rounds.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// How a plan becomes programs: the same on all ranks.
struct online_setting {
    lowering_options lowering{};
    /// What a unit of the problem's time is on the clock.
    clock_time time_unit{};
};

/// The arenas that hold whatever plan of a problem keeps to the memory limits of a rank; where there is no limit, all
/// that is ever stored on it. Message buffers have no limit in the problem: twice those of the first program.
[[nodiscard]] inline execution::arena_sizes room_for_plans(const problem& p, const rank_program& first,
                                                           const lowering_options& how) {
    constexpr std::size_t message_room = 2;
    memory_size all{};
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == first.self) {
            auto most = std::max(p.costs[s].activation, p.costs[s].weight_stash);
            for (const auto& option : p.storage[s])
                most = std::max(most, option.held);
            all += static_cast<double>(p.graph.microbatches()) * most;
        }
    const auto bytes = [&](memory_size limit) {
        return static_cast<std::size_t>(std::ceil(std::min(limit, all).value() * how.bytes_per_unit));
    };
    const execution::arena_sizes room{bytes(p.memory_limit[first.self]), bytes(p.host_memory_limit[first.self]),
                                      message_room * first.message_bytes};
    return largest(room, execution::sizes_of(first));
}

/// Training that measures itself, plans again beside it, and hands better plans over, on one rank.
///
/// Every `measure_every` steps each rank tells rank 0 when its instructions ran. There an `online_controller` keeps the
/// costs, plans on threads of its own, and publishes what is worth a switch; all ranks switch between the same two
/// steps (`handover`). Transfers that the plan in use doesn't have are measured now and then before a step, so that a
/// link that the plan avoids isn't believed to be slow for ever (`probe_rounds`). `step` costs rank 0 the comparison of
/// costs beside the step itself, no rank anything else.
///
/// Contract: that of `handover`; all ranks are made with the same problem, schedule, setting and options. The executor
/// records times.
template <class Executor, class Model, execution::control_channel Channel> class online_run {
public:
    /// Begins with `first`, a valid schedule of the problem, in the arenas of `room_for_plans`, or larger ones.
    online_run(const problem& p, const schedule& first, Executor& on, Model& model, Channel& channel,
               const online_setting& setting, const online_options& options = {},
               const execution::arena_sizes& room = {})
        : setting_{setting}, options_{options}, graph_{p.graph}, executor_{&on}, rounds_{p, first, on.self(),
                                                                                         options.probe_share,
                                                                                         options.least_probed_change},
          programs_{lowered(p, first, setting.lowering)},
          handover_{programs_[on.self()],
                    on,
                    model,
                    channel,
                    [this](const std::string& text) { return remembered(text); },
                    largest(room, room_for_plans(p, programs_[on.self()], setting.lowering))} {
        if (on.self() == rank{0}) controller_.emplace(p, first, options);
    }
    online_run(const online_run&) = delete;
    online_run& operator=(const online_run&) = delete;

    /// One step, and the handover of a better plan where all ranks are ready for one. Throws as `handover::step` does.
    void step() {
        const bool measured = steps_ % std::max<std::size_t>(1, options_.measure_every) == 0;
        const auto before = handover_.settled();
        handover_.forget_times();
        const auto begin = clock::now();
        auto ended = begin;
        const auto probed = begin_probe();
        handover_.step([&] {
            ended = clock::now();
            if (measured) handover_.report(detail::times_to_text({steps_, handover_.version(), handover_.times()}));
            if (probed) report_probe(*probed);
        });
        const std::chrono::duration<double> took = ended - begin;
        const std::chrono::duration<double> exchange = clock::now() - ended;
        ++steps_;
        const bool settled = handover_.settled() > before;
        if (settled && handover_.last_result().accepted) {
            const std::scoped_lock lock{mutex_};
            std::swap(programs_, next_programs_);
            measured_.clear();
        }
        if (!controller_) return;
        controller_->add_step(took.count());
        if (settled)
            controller_->settled(handover_.last_result().accepted, handover_.last_result().refusals, exchange.count());
        take_reports();
        if (const auto plan = controller_->next_plan()) handover_.publish(detail::plan_to_text(*plan));
    }

    [[nodiscard]] std::uint64_t steps() const { return steps_; }
    /// Of the program that the next step runs: the same on all ranks; 0 at first.
    [[nodiscard]] std::uint64_t version() const { return handover_.version(); }
    /// On rank 0: what it decides, and its log; null elsewhere.
    [[nodiscard]] const online_controller* controller() const { return controller_ ? &*controller_ : nullptr; }

private:
    using clock = std::chrono::steady_clock;

    static per_rank<rank_program> lowered(const problem& p, const schedule& s, const lowering_options& how) {
        auto programs = lower(p, s, how);
        if (!programs) throw error{describe(programs.why())};
        return *std::move(programs);
    }
    /// By the thread of the handover. Only one plan is under way at a time.
    per_rank<rank_program> remembered(const std::string& text) {
        auto made = detail::programs_from_text(text, setting_.lowering);
        const std::scoped_lock lock{mutex_};
        next_programs_ = made;
        return made;
    }
    /// Where it is this rank's turn: the offload that goes to the host and back before the step.
    std::optional<operation> begin_probe() {
        const auto what = rounds_.next(steps_, handover_.program());
        if (!what || !can_probe_) return std::nullopt;
        const auto bytes =
            static_cast<std::size_t>(std::llround(what->size.value() * setting_.lowering.bytes_per_unit));
        try {
            if (!probe_) probe_.emplace(*executor_);
        } catch (const std::exception&) {
            can_probe_ = false; // it has no lane for that: training goes on without
            return std::nullopt;
        }
        return handover_.probe(*probe_, what->offload, bytes) ? std::optional{what->offload} : std::nullopt;
    }
    void report_probe(const operation& what) {
        const auto took = probe_->times();
        if (!took) return;
        const auto out = took->offload.end - took->offload.start;
        const auto in = took->reload.end - took->reload.start;
        rounds_.took(steps_, what, {in_units(out), in_units(in)});
        handover_.report(detail::probe_to_text({steps_, what, out, in}));
    }
    [[nodiscard]] duration in_units(std::chrono::nanoseconds time) const {
        return duration{clock_time{time} / setting_.time_unit};
    }
    /// Steps of the present program that all ranks have told of, and probes.
    void take_reports() {
        while (const auto next = handover_.next_report()) {
            if (const auto probe = detail::probe_from_text(next->text)) {
                controller_->add_probe(probe->step, probe->offload, {in_units(probe->out), in_units(probe->in)});
                continue;
            }
            auto told = detail::times_from_text(next->text);
            if (told.version != handover_.version()) continue;
            auto& by_rank = measured_[told.step];
            by_rank.push_back({&programs_[next->from], std::move(told.times)});
            if (by_rank.size() < programs_.size()) continue;
            take_measured(told.step, by_rank);
            measured_.erase(measured_.begin(), measured_.upper_bound(told.step));
        }
    }
    void take_measured(std::uint64_t step, const std::vector<rank_times>& of) {
        const auto& p = controller_->present_problem();
        controller_->add_measured(step, measured_schedule(graph_, of, setting_.time_unit),
                                  message_times(p, of, setting_.time_unit));
    }

    online_setting setting_;
    online_options options_;
    any_graph graph_;
    Executor* executor_;
    probe_rounds rounds_;
    bool can_probe_ = true;
    std::mutex mutex_{};
    /// Of all ranks: the ones that run, and under the mutex those of the plan that was made last.
    per_rank<rank_program> programs_;
    per_rank<rank_program> next_programs_{};
    std::uint64_t steps_ = 0;
    /// By step: the ranks that have told of it.
    std::map<std::uint64_t, std::vector<rank_times>> measured_{};
    std::optional<online_controller> controller_{};
    handover<Executor, Model, Channel> handover_;
    /// Once a transfer is probed. Goes before the arenas, of which it uses the memory.
    std::optional<execution::transfer_probe<Executor>> probe_{};
};

} // namespace optpipe
