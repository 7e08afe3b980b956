#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The memory in use from `time` until the time of the next point.
struct memory_point {
    duration time{};
    memory_size level{};
    friend constexpr bool operator==(const memory_point&, const memory_point&) = default;
};

enum class memory_kind { device, host };

namespace detail {

/// A change of the memory that a rank uses. The amount is negative if memory is freed.
struct memory_change {
    duration time;
    memory_size amount;
};

/// Calls `visit(rank, change)` for the changes that an operation makes.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_memory_change(const basic_problem<Graph>& p, const timed_operation& timed, memory_kind which,
                                      const Visit& visit) {
    using enum operation_kind;
    const bool device = which == memory_kind::device;
    const auto kind = timed.op.kind;
    const auto effect = memory_effect_of(p, timed.op);
    const rank r = p.rank_of(timed.op.stage);
    const auto acquired = device ? effect.acquired_at_start : effect.host_acquired_at_start;
    const auto released = device ? effect.released_at_end : effect.host_released_at_end;
    // These kinds make a change even of amount 0: an instant (of length `slack`) may begin with such a change.
    const bool acquires = device ? kind == forward || kind == recompute || kind == reload : kind == offload;
    const bool releases = device ? kind == backward || kind == backward_weight || kind == offload ||
                                       (kind == backward_input && acquired == memory_size{})
                                 : kind == reload;
    if (acquires || acquired != memory_size{}) visit(r, memory_change{timed.start, acquired});
    if (releases || released != memory_size{}) visit(r, memory_change{timed.end, -released});
    if (!device || p.is_simple()) return;
    for_each_release_of_others(p, timed.op, [&](rank of, memory_size amount) {
        visit(of, memory_change{timed.end, -amount});
    });
}

/// Calls `visit(rank, change)` for the memory that pairs take in addition to their parts.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_memory_change_of_pairs(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                               const Visit& visit) {
    if (p.overlaps.empty()) return;
    for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
        const auto* of = overlap_of(p, f.op, b.op);
        if (!of || of->memory == memory_size{}) return;
        visit(p.rank_of(f.op.stage), memory_change{f.start, of->memory});
        visit(p.rank_of(f.op.stage), memory_change{f.end, -of->memory});
    });
}

/// The curve that results from all changes on a rank. Changes within `slack` count as one instant.
OPTPIPE_CONSTEXPR std::vector<memory_point> curve_of(std::vector<memory_change> changes, duration slack) {
    std::sort(changes.begin(), changes.end(), [](const memory_change& a, const memory_change& b) {
        return a.time != b.time ? a.time < b.time : a.amount < b.amount;
    });
    std::vector<memory_point> curve;
    memory_size level{};
    for (std::size_t i = 0; i < changes.size();) {
        const auto now = changes[i].time;
        bool has_changed = false;
        for (; i < changes.size() && changes[i].time <= now + slack; ++i) {
            level += changes[i].amount;
            has_changed = has_changed || changes[i].amount != memory_size{};
        }
        if (has_changed) curve.push_back({now, level});
    }
    return curve;
}

/// Whether the problem has all operations of the schedule.
template <pipeline_graph Graph>
constexpr bool has_operations_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    const operation_numbering<Graph> number{p.graph};
    return std::all_of(s.operations.begin(), s.operations.end(),
                       [&](const timed_operation& timed) { return number.contains(timed.op); });
}

/// The memory of all ranks over time.
template <pipeline_graph Graph>
constexpr per_rank<std::vector<memory_point>> curves_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                                        memory_kind which, duration slack) {
    per_rank<std::vector<memory_change>> changes(p.graph.ranks());
    const auto add = [&](rank r, const memory_change& each) { changes[r].push_back(each); };
    for (const auto& timed : s.operations)
        for_each_memory_change(p, timed, which, add);
    if (which == memory_kind::device) for_each_memory_change_of_pairs(p, s, add);
    per_rank<std::vector<memory_point>> curves(p.graph.ranks());
    for (const rank r : p.graph.all_ranks())
        curves[r] = curve_of(std::move(changes[r]), slack);
    return curves;
}

} // namespace detail

/// The memory of one rank over time. At one instant (within `slack`), memory is freed before more is taken. The stash
/// of an operation shorter than `slack` thus doesn't count. Contract: the problem has all of the schedule's operations,
/// and no time is NaN.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::vector<memory_point>
memory_curve(const basic_problem<Graph>& p, const basic_schedule<Graph>& s, rank r,
             memory_kind which = memory_kind::device, duration slack = {}) {
    OPTPIPE_EXPECT(detail::has_operations_of(p, s), "memory_curve: the schedule is of another pipeline");
    OPTPIPE_EXPECT(has_times(s.operations), "memory_curve: a time of the schedule is NaN");
    return detail::curves_of(p, s, which, slack)[r];
}

[[nodiscard]] OPTPIPE_CONSTEXPR memory_size peak_of(const std::vector<memory_point>& curve) {
    memory_size peak{};
    for (const auto& point : curve)
        peak = std::max(peak, point.level);
    return peak;
}

/// The measures of a schedule.
template <auto Ranks> struct measures_by_rank {
    duration objective{};
    duration makespan{};
    /// The longest time from the first start to the last end of a rank's computations.
    duration span{};
    double bubble_rate = 0.0;
    /// The largest value of (time of recomputation) / (`busy` time) over all ranks. Recomputation inside the backward
    /// counts, too.
    double recompute_rate = 0.0;
    per_rank<duration, Ranks> busy{};
    per_rank<memory_size, Ranks> peak_memory{};
    per_rank<memory_size, Ranks> peak_host_memory{};
    std::size_t offloads = 0;
    /// Number of cells that recompute, separately or inside the backward.
    std::size_t recomputes = 0;
    std::size_t pairs = 0;
};
template <std::size_t Ranks = dynamic> using basic_measures = measures_by_rank<named_extent<Ranks>()>;
using measures = basic_measures<>;

/// The time span of each rank from the first start to the last end of its computations.
template <auto Ranks> struct basic_engagement {
    /// The first start on each rank; unlimited if the rank has no operations.
    per_rank<duration, Ranks> first{};
    per_rank<duration, Ranks> last{};

    /// The length of the span; 0 if the rank has no operations.
    [[nodiscard]] constexpr duration span(rank r) const {
        return first[r].is_unlimited() ? duration{} : last[r] - first[r];
    }
};

template <pipeline_graph Graph>
[[nodiscard]] constexpr auto engagement_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    using times = per_rank<duration, Graph::rank_extent>;
    basic_engagement<named_extent<Graph::rank_extent>()> found{times(p.graph.ranks(), duration::unlimited()),
                                                               times(p.graph.ranks())};
    for (const auto& timed : s.operations) {
        if (is_transfer(timed.op.kind)) continue;
        const rank r = p.rank_of(timed.op.stage);
        found.first[r] = std::min(found.first[r], timed.start);
        found.last[r] = std::max(found.last[r], timed.end);
    }
    return found;
}

/// The objective of a schedule, without its other measures. Contract: the problem has the schedule's stages.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration objective_of(const basic_problem<Graph>& p, const basic_schedule<Graph>& s) {
    OPTPIPE_EXPECT(s.graph.stages() <= p.graph.stages(), "objective_of: the schedule is of another pipeline");
    const auto engaged = engagement_of(p, s);
    duration longest{};
    for (const rank r : p.graph.all_ranks())
        longest = std::max(longest, p.objective == objective_kind::span ? engaged.span(r) : engaged.last[r]);
    return longest;
}

namespace detail {

constexpr duration shortest_computation(const stage_costs& c) {
    if (c.gradients == gradient_kind::full) return std::min({c.forward, c.backward_input, c.backward_weight});
    return c.gradients == gradient_kind::input ? std::min(c.forward, c.backward_input) : c.forward;
}

} // namespace detail

/// The slack for comparisons of times. The slack is relative to min(last end, serial time), as an invalid schedule may
/// end absurdly late. As far as precision permits, the slack is at most half of the shortest computation.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration time_slack(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                            tolerance t = {}) {
    constexpr tolerance rounding{1e-12};
    const auto scale = std::min(last_end(s), p.serial_time());
    auto shortest = scale;
    if (!p.microbatches.has_factors())
        for (const auto& c : p.costs)
            shortest = std::min(shortest, detail::shortest_computation(c));
    else
        for (const stage at : p.graph.all_stages())
            for (const microbatch m : p.graph.all_microbatches())
                shortest = std::min(shortest, detail::shortest_computation(p.cost(at, m)));
    return std::min(t.at(scale), std::max(0.5 * shortest, rounding.at(scale)));
}

/// All measures of a schedule. Contract: the problem has all of the schedule's operations, and no time is NaN.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_measures<Graph::rank_extent> measure(const basic_problem<Graph>& p,
                                                                   const basic_schedule<Graph>& s, tolerance t = {}) {
    OPTPIPE_EXPECT(detail::has_operations_of(p, s), "measure: the schedule is of another pipeline");
    OPTPIPE_EXPECT(has_times(s.operations), "measure: a time of the schedule is NaN");
    const auto ranks = p.graph.ranks();
    basic_measures<Graph::rank_extent> m;
    m.busy = per_rank<duration, Graph::rank_extent>(ranks);
    m.peak_memory = per_rank<memory_size, Graph::rank_extent>(ranks);
    m.peak_host_memory = m.peak_memory;
    const auto engaged = engagement_of(p, s);
    auto recomputed = m.busy;
    for (const auto& timed : s.operations) {
        const rank r = p.rank_of(timed.op.stage);
        if (timed.op.kind == operation_kind::forward) {
            const auto factor = p.microbatches.factors(timed.op.stage, timed.op.microbatch).forward;
            const auto extra = factor * storage_of(p, timed.op).extra_work();
            recomputed[r] += extra;
            if (extra > duration{}) ++m.recomputes;
        }
        if (timed.op.kind == operation_kind::offload) ++m.offloads;
        if (is_second_part(timed.op)) ++m.pairs;
        if (is_transfer(timed.op.kind) || is_second_part(timed.op)) continue;
        m.busy[r] += timed.end - timed.start;
    }
    duration busiest{};
    const auto slack = time_slack(p, s, t);
    const auto on_device = detail::curves_of(p, s, memory_kind::device, slack);
    const auto on_host = detail::curves_of(p, s, memory_kind::host, slack);
    for (const rank r : p.graph.all_ranks()) {
        busiest = std::max(busiest, m.busy[r]);
        if (m.busy[r] > duration{}) m.recompute_rate = std::max(m.recompute_rate, recomputed[r] / m.busy[r]);
        m.makespan = std::max(m.makespan, engaged.last[r]);
        m.span = std::max(m.span, engaged.span(r));
        m.peak_memory[r] = peak_of(on_device[r]);
        m.peak_host_memory[r] = peak_of(on_host[r]);
    }
    m.objective = p.objective == objective_kind::span ? m.span : m.makespan;
    m.bubble_rate = m.objective > duration{} ? (m.objective - busiest) / m.objective : 0.0;
    return m;
}

/// The largest number of stashes that a rank of this order holds at once. A stash is held from its F to its W or B.
/// Transfers are ignored.
template <pipeline_graph Graph> [[nodiscard]] constexpr std::size_t peak_stash(const basic_order<Graph>& given) {
    per_rank<std::size_t, Graph::rank_extent> held(given.graph.ranks());
    std::size_t peak = 0;
    for (const auto& op : given.operations) {
        auto& now = held[given.graph.rank_of(op.stage)];
        if (op.kind == operation_kind::forward) peak = std::max(peak, ++now);
        if (is_weight_gradient(op.kind)) --now;
    }
    return peak;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] measures measure(const problem& p, const schedule& s, tolerance t = {});
#endif

} // namespace optpipe
