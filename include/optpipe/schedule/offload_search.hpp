#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/merge_lanes.hpp"
#include "optpipe/schedule/offload_placement.hpp"
#include "optpipe/schedule/offload_repair.hpp"
#include "optpipe/schedule/simulate.hpp"

#include <algorithm>
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

/// Looks for the best transfers for a given order of computations: first such that delay nothing, then, where the
/// memory is too small for these, with computations that wait; placed anew around the times that they then have, as
/// long as that helps.
template <pipeline_graph Graph> class offload_search {
public:
    constexpr offload_search(const basic_problem<Graph>& p, const cell_flags& may_travel)
        : p_{p}, may_travel_{may_travel}, keeper_{p, may_travel} {
        for (const rank r : p.graph.all_ranks())
            limited_ = limited_ || !p.memory_limit[r].is_unlimited();
    }

    constexpr void run(const basic_order<Graph>& computations) {
        const auto free = without_limits(p_);
        auto timed = *simulate(free, computations);
        const auto reached = objective_after_postponing(timed);
        const auto undelayed = reached + tolerance{}.at(reached);
        // Large problems have few rounds, for the time it takes.
        constexpr std::size_t many_cells = 20'000;
        const int most_rounds = may_travel_.size() < many_cells ? 4 : 2;
        for (int round = 0; round < most_rounds; ++round) {
            const auto before = best_value_;
            place(timed, undelayed);
            if (!best_ || best_value_ <= undelayed || !(best_value_ < before)) return;
            timed = computations_of(*best_schedule_);
            postpone_warm_up(p_, timed);
        }
    }
    /// The best order; where none fits the memory, the one that lacks least. Contract: after a run.
    [[nodiscard]] constexpr basic_order<Graph> take() && { return best_ ? *std::move(best_) : *std::move(nearest_); }
    [[nodiscard]] constexpr duration value() const { return best_value_; }
    [[nodiscard]] constexpr memory_size lack() const { return least_lack_; }

private:
    constexpr duration objective_after_postponing(basic_schedule<Graph>& timed) const {
        const auto makespan = objective_of(p_, timed);
        postpone_warm_up(p_, timed);
        return p_.objective == objective_kind::span ? objective_of(p_, timed) : makespan;
    }
    static constexpr basic_schedule<Graph> computations_of(const basic_schedule<Graph>& s) {
        basic_schedule<Graph> result{s.graph, {}};
        for (const auto& timed : s.operations)
            if (!is_transfer(timed.op.kind)) result.operations.push_back(timed);
        return result;
    }

    /// As published, stashes that are back within three round trips stay; all others that can be in time travel where
    /// that isn't enough.
    constexpr void place(basic_schedule<Graph>& computations, duration undelayed) {
        std::sort(computations.operations.begin(), computations.operations.end(), starts_before);
        const offload_placer<Graph> placer{p_, may_travel_, computations};
        for (const double round_trips : {3.0, 1.0})
            for (const bool in_slots : {true, false}) {
                offer(merged(computations, placer.run({in_slots, round_trips})));
                if (limited_ && best_value_ <= undelayed) return;
            }
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

    constexpr void offer(const basic_schedule<Graph>& planned) {
        per_rank<std::vector<operation>> lanes(p_.graph.ranks());
        basic_order<Graph> as_planned{p_.graph, {}};
        for (const auto& timed : planned.operations) {
            lanes[p_.rank_of(timed.op.stage)].push_back(timed.op);
            as_planned.operations.push_back(timed.op);
        }
        const auto peak = limited_ ? memory_size{} : largest_peak(planned);
        evaluate(std::move(as_planned), peak);
        const auto before = lanes;
        for (const rank r : p_.graph.all_ranks())
            keeper_.run(r, lanes[r]);
        if (!(lanes == before)) evaluate(lane_merger<Graph>{p_.graph, lanes, planned}.run(), peak);
    }
    constexpr memory_size largest_peak(const basic_schedule<Graph>& planned) const {
        const auto peaks = measure(p_, planned).peak_memory;
        return *std::max_element(peaks.begin(), peaks.end());
    }
    /// Of equal objectives the lower planned peak counts, where no limit says what is enough.
    constexpr void evaluate(basic_order<Graph> candidate, memory_size peak) {
        auto timed = time_order(p_, candidate);
        if (!timed) {
            consider_nearest(std::move(candidate), timed.why());
            return;
        }
        const auto value = objective_of(p_, *timed);
        const auto slack = tolerance{}.at(value);
        if (best_ && (value > best_value_ + slack || (value >= best_value_ - slack && peak >= best_peak_))) return;
        best_ = std::move(candidate);
        best_schedule_ = *std::move(timed);
        best_value_ = value;
        best_peak_ = peak;
    }

    /// What keeps to the host's memory lacks less than anything that doesn't.
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

    const basic_problem<Graph>& p_;
    const cell_flags& may_travel_;
    memory_keeper<Graph> keeper_;
    bool limited_ = false;
    std::optional<basic_order<Graph>> best_{};
    std::optional<basic_schedule<Graph>> best_schedule_{};
    duration best_value_ = duration::unlimited();
    memory_size best_peak_{};
    std::optional<basic_order<Graph>> nearest_{};
    bool nearest_keeps_host_ = false;
    memory_size least_lack_ = memory_size::unlimited();
};

} // namespace detail
} // namespace optpipe
