#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/merge_lanes.hpp"
#include "optpipe/schedule/construct/offload_placement.hpp"
#include "optpipe/schedule/construct/offload_repair.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_problem<Graph> without_limits(const basic_problem<Graph>& p) {
    auto free = p;
    for (auto& limit : free.memory_limit)
        limit = memory_size::unlimited();
    for (auto& limit : free.host_memory_limit)
        limit = memory_size::unlimited();
    return free;
}

/// The effort of `offload_search`. Defaults without a source are not tuned.
struct offload_search_parameters {
    /// Number of rounds. Each round places transfers around the times of the previous round.
    int most_rounds = 6;
    /// Limit on the number of operations examined. The default takes one or two seconds.
    std::size_t effort = 5'000'000;
    /// A stash stays on the device if it is needed within this number of round trips to the host. The published number
    /// 3 is tried first, then 1 if 3 takes too much memory.
    std::array<double, 2> round_trips{3.0, 1.0};
    /// Share by which a plan is made longer at first. The share doubles until all allowed transfers are in time, or
    /// until it exceeds `most_slowdown`. Measured on the best plans of 54 random problems: the slowdown was a factor of
    /// 2 if transfers took two thirds of the step, and 1.1 if they took the entire step.
    double first_slowdown = 0.05;
    double most_slowdown = 2.0;
    /// If nothing else fits, only every n-th stash is offloaded.
    std::array<std::size_t, 2> every{2, 3};
};

/// Searches for the best transfers for a given order of computations. The search first tries transfers that delay
/// nothing. If transfers without delay free too little memory, the search tries transfers that make computations wait.
/// Transfers are placed again around the new times while the result improves.
template <pipeline_graph Graph> class offload_search {
public:
    constexpr offload_search(const basic_problem<Graph>& p, const cell_flags& may_offload)
        : p_{p}, may_offload_{may_offload}, keeper_{p, may_offload} {
        for (const rank r : p.graph.all_ranks())
            limited_ = limited_ || !p.memory_limit[r].is_unlimited();
    }

    /// `stop` is polled between and within attempts, but one order is always tried. `abandon` also interrupts the first
    /// attempt; there may be no result.
    constexpr void run(const basic_order<Graph>& computations, stop_check stop = {}, stop_check abandon = {}) {
        abandon_ = abandon;
        const auto free = without_limits(p_);
        auto timed = *simulate(free, computations);
        const auto reached = objective_after_postponing(timed);
        const auto undelayed = reached + tolerance{}.at(reached);
        for (int round = 0; round < with_.most_rounds; ++round) {
            round_value_ = duration::unlimited();
            place(timed, undelayed, stop);
            if (round_value_.is_unlimited() || best_value_ <= undelayed || is_exhausted() || stop()) return;
            timed = computations_of(round_schedule_);
            postpone_warm_up(p_, timed);
        }
    }
    /// Whether an order was found.
    [[nodiscard]] constexpr bool found() const { return best_ || nearest_; }
    /// The best order that fits in memory. If no order fits, the order that exceeds the memory limits least. Contract:
    /// `found()` is true.
    [[nodiscard]] constexpr basic_order<Graph> take() && { return best_ ? *std::move(best_) : *std::move(nearest_); }
    [[nodiscard]] constexpr duration value() const { return best_value_; }
    [[nodiscard]] constexpr memory_size lack() const { return least_lack_; }
    /// Number of operations examined in all attempts.
    [[nodiscard]] constexpr std::size_t spent() const { return spent_; }

private:
    /// Whether the effort is used up. Effort is a deterministic measure of time.
    constexpr bool is_exhausted() const { return spent_ > with_.effort; }
    constexpr duration objective_after_postponing(basic_schedule<Graph>& timed) const {
        const auto makespan = objective_of(p_, timed);
        postpone_warm_up(p_, timed);
        return p_.objective == objective_kind::span ? objective_of(p_, timed) : makespan;
    }
    /// The computations of a schedule, without their storage options. When transfers are placed around the
    /// computations, the options are set again.
    static constexpr basic_schedule<Graph> computations_of(const basic_schedule<Graph>& s) {
        basic_schedule<Graph> result{s.graph, {}};
        for (auto timed : s.operations) {
            timed.op.storage = 0;
            if (!is_transfer(timed.op.kind)) result.operations.push_back(timed);
        }
        return result;
    }

    /// As published, stashes that are needed within three round trips stay on the device. If the stashes on the device
    /// don't fit, all stashes that can be reloaded in time are offloaded. If computations wait for transfers, the plan
    /// is slowed down until all transfers are in time.
    constexpr void place(basic_schedule<Graph>& computations, duration undelayed, stop_check stop) {
        std::size_t in_time = 0;
        std::sort(computations.operations.begin(), computations.operations.end(), starts_before);
        const auto attempt = [&](const offload_placer<Graph>& placer, const basic_schedule<Graph>& around,
                                 const offload_placement& how) {
            const auto transfers = placer.run(how, abandon_);
            in_time = transfers.size();
            offer(merged(around, transfers), stop);
            return is_exhausted() || stop() || (limited_ && best_value_ <= undelayed);
        };
        const offload_placer<Graph> placer{p_, may_offload_, computations};
        for (const double round_trips : with_.round_trips)
            for (const bool in_slots : {true, false})
                if (attempt(placer, computations, {in_slots, round_trips, 1})) return;
        if (!limited_) return;
        // Without planned transfers, only the memory decides which stashes are offloaded.
        offer(computations, stop);
        for (auto part = with_.first_slowdown; part <= with_.most_slowdown && in_time < all_transfers(); part *= 2.0) {
            const auto slow = slowed_down(computations, 1.0 + part);
            const offload_placer<Graph> slow_placer{p_, may_offload_, slow};
            for (const bool in_slots : {true, false})
                if (attempt(slow_placer, slow, {in_slots, 1.0, 1})) return;
        }
        for (const std::size_t every : with_.every)
            for (const bool in_slots : {true, false})
                if (attempt(placer, computations, {in_slots, 1.0, every})) return;
    }

    constexpr std::size_t all_transfers() const {
        return 2 * static_cast<std::size_t>(std::count(may_offload_.begin(), may_offload_.end(), 1));
    }
    static constexpr basic_schedule<Graph> slowed_down(basic_schedule<Graph> s, double factor) {
        for (auto& timed : s.operations) {
            timed.start = factor * timed.start;
            timed.end = factor * timed.end;
        }
        return s;
    }
    static constexpr basic_schedule<Graph> merged(const basic_schedule<Graph>& computations,
                                                  const std::vector<timed_operation>& transfers) {
        basic_schedule<Graph> result{computations.graph, {}};
        result.operations.reserve(computations.operations.size() + transfers.size());
        auto next = transfers.begin();
        for (const auto& timed : computations.operations) {
            for (; next != transfers.end() && starts_before(*next, timed); ++next)
                result.operations.push_back(*next);
            result.operations.push_back(timed);
        }
        for (; next != transfers.end(); ++next)
            result.operations.push_back(*next);
        return result;
    }

    constexpr void offer(const basic_schedule<Graph>& planned, stop_check stop) {
        per_rank<std::vector<operation>> lanes(p_.graph.ranks());
        basic_order<Graph> as_planned{p_.graph, {}};
        for (const auto& timed : planned.operations) {
            lanes[p_.rank_of(timed.op.stage)].push_back(timed.op);
            as_planned.operations.push_back(timed.op);
        }
        const auto peak = limited_ ? memory_size{} : largest_peak(planned);
        evaluate(std::move(as_planned), peak);
        if (abandon_()) return;
        const auto before = lanes;
        for (const rank r : p_.graph.all_ranks())
            if (!stop()) keeper_.run(r, lanes[r]);
        if (!stop() && !(lanes == before)) evaluate(lane_merger<Graph>{p_.graph, lanes, planned}.run(), peak);
    }
    constexpr memory_size largest_peak(const basic_schedule<Graph>& planned) const {
        const auto peaks = measure(p_, with_storage_of_transfers(p_, planned)).peak_memory;
        return *std::max_element(peaks.begin(), peaks.end());
    }
    /// Keeps the best candidate. If two candidates have equal objectives and no memory is limited, the candidate with
    /// the lower planned peak is better.
    constexpr void evaluate(basic_order<Graph> candidate, memory_size peak) {
        if (abandon_()) return;
        spent_ += candidate.operations.size();
        auto timed = time_order(p_, candidate, abandon_);
        if (abandon_()) return;
        if (!timed) {
            consider_nearest(std::move(candidate), timed.why());
            return;
        }
        const auto value = objective_of(p_, *timed);
        if (value < round_value_) {
            round_value_ = value;
            round_schedule_ = *std::move(timed);
        }
        const auto slack = tolerance{}.at(value);
        if (best_ && (value > best_value_ + slack || (value >= best_value_ - slack && peak >= best_peak_))) return;
        best_ = std::move(candidate);
        best_value_ = value;
        best_peak_ = peak;
    }

    /// Any order that fits in host memory is better than one that doesn't.
    constexpr void consider_nearest(basic_order<Graph> candidate, const refusal& why) {
        const bool keeps_host = why.reason == refusal_reason::over_memory;
        const auto lack = why.needed - why.limit;
        if (nearest_ &&
            (nearest_keeps_host_ > keeps_host || (nearest_keeps_host_ == keeps_host && lack >= least_lack_)))
            return;
        least_lack_ = lack;
        nearest_keeps_host_ = keeps_host;
        nearest_ = std::move(candidate);
    }

    static constexpr offload_search_parameters with_{};

    const basic_problem<Graph>& p_;
    const cell_flags& may_offload_;
    memory_keeper<Graph> keeper_;
    bool limited_ = false;
    stop_check abandon_{};
    std::size_t spent_ = 0;
    std::optional<basic_order<Graph>> best_{};
    duration best_value_ = duration::unlimited();
    memory_size best_peak_{};
    basic_schedule<Graph> round_schedule_{};
    duration round_value_ = duration::unlimited();
    std::optional<basic_order<Graph>> nearest_{};
    bool nearest_keeps_host_ = false;
    memory_size least_lack_ = memory_size::unlimited();
};

} // namespace detail
} // namespace optpipe
