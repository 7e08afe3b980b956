#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "optpipe/schedule/bounds/holding_area.hpp"
#include "optpipe/schedule/bounds/memory_area.hpp"
#include "optpipe/schedule/bounds/one_machine.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"
#include "optpipe/schedule/bounds/stash_rounds.hpp"
#include "optpipe/schedule/bounds/storage_relaxation.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace optpipe {

/// Lower bounds on the objective of every valid schedule. Each bound follows from the structure of the problem alone. A
/// trivial bound is 0.
struct structural_bounds {
    /// The work of the busiest rank, plus the least time before and after this work. The bound is never below the time
    /// of one microbatch through all stages.
    duration device_load{};
    /// Like `device_load`, but only the forwards that fit in memory run before a rank's first gradient. Extends Zero
    /// Bubble, appendix B, to unequal stages, any placement and offloading.
    duration warm_up{};
    /// A bound from the memory × lifetime of the stashes on each rank. An activation can be offloaded for its lifetime
    /// minus its transfers, if the rank's link has the time. If the problem isn't plain, the bound is
    /// `holding_area_bound`.
    duration memory_area{};
    /// A bound for stages without offloading. A rank with room for k stashes of a stage runs the stage's microbatches
    /// in rounds of k.
    duration stash_rounds{};
    /// 6m + 6p − 3k − 1 (Controllable Memory, appendix) for m microbatches on p ranks in v placement. Needs unit
    /// passes, k < 2m stashes per rank and no offloading.
    duration v_placement{};
    /// The largest objective that propagation at the root refutes (`propagation_bound`). Propagation applies rules for
    /// precedence, one machine per rank, memory and copy engines. Only `strong_bounds_of` computes this bound.
    duration propagation{};

    /// The largest of all the bounds.
    [[nodiscard]] constexpr duration best() const;
};

/// A bound, and its name in tables.
struct named_bound {
    using member = duration structural_bounds::*; // without this name, g++ warns about nvcc's code for `value`
    const char* name;
    member value;
};
/// Every member of `structural_bounds`, in the order of their declarations.
inline constexpr std::array structural_bound_names{named_bound{"device load", &structural_bounds::device_load},
                                                   named_bound{"warm-up", &structural_bounds::warm_up},
                                                   named_bound{"memory area", &structural_bounds::memory_area},
                                                   named_bound{"stash rounds", &structural_bounds::stash_rounds},
                                                   named_bound{"v placement", &structural_bounds::v_placement},
                                                   named_bound{"propagation", &structural_bounds::propagation}};
static_assert(structural_bound_names.size() * sizeof(duration) == sizeof(structural_bounds));

/// The largest bound, or the first of several equal ones.
[[nodiscard]] constexpr const named_bound& best_bound(const structural_bounds& bounds) {
    return *std::max_element(structural_bound_names.begin(), structural_bound_names.end(),
                             [&](const auto& a, const auto& b) { return bounds.*a.value < bounds.*b.value; });
}
constexpr duration structural_bounds::best() const { return this->*best_bound(*this).value; }

namespace detail {

template <pipeline_graph Graph>
constexpr duration device_load_bound(const basic_problem<Graph>& p, rank r, const time_windows<Graph>& windows) {
    std::vector<machine_job> jobs;
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        const auto& c = p.costs[s];
        for (std::size_t m = 0; m < p.graph.microbatches(); ++m) {
            jobs.push_back({windows.forward(s).head[m], c.forward, windows.forward(s).tail[m]});
            jobs.push_back({windows.gradient(s).head[m], p.gradient_time(s), windows.gradient(s).tail[m]});
            if (p.split_backward)
                jobs.push_back({windows.weight(s).head[m], c.backward_weight, windows.weight(s).tail[m]});
        }
    }
    return one_machine_bound(std::move(jobs));
}

/// Until its first gradient starts at t1, the rank only runs forwards that fit. The rank's end ≥ t1 + load − (forwards
/// done by t1) + (time after its last operation).
template <pipeline_graph Graph>
constexpr duration warm_up_bound(const basic_problem<Graph>& p, rank r, const time_windows<Graph>& windows) {
    if (p.memory_limit[r].is_unlimited()) return {};
    duration first_gradient = duration::unlimited();
    duration head = duration::unlimited();
    duration last_tail{};
    duration longest_forward{};
    duration shortest_way_out = duration::unlimited();
    auto smallest_stash = memory_size::unlimited();
    for (std::size_t i = p.graph.stages(); i-- > 0;) {
        const stage s{i};
        if (p.rank_of(s) != r) continue;
        const auto& c = p.costs[s];
        first_gradient = std::min(first_gradient, windows.gradient(s).head[0]);
        head = std::min(head, windows.forward(s).head[0]);
        last_tail = p.split_backward ? duration{} : windows.gradient(s).tail[p.graph.microbatches() - 1];
        longest_forward = std::max(longest_forward, c.forward);
        smallest_stash = std::min(smallest_stash, c.activation);
        if (const auto transfer = stash_transfer(p, s))
            shortest_way_out = std::min(shortest_way_out, transfer->offload);
    }
    const auto slack = tolerance{}.at(p.memory_scale());
    if (smallest_stash <= slack || longest_forward > shortest_way_out) return {};
    const double stashes = times_in(smallest_stash, p.memory_limit[r] + slack);
    auto done = stashes * longest_forward;
    if (!shortest_way_out.is_unlimited())
        done += longest_forward * std::max(0.0, (first_gradient - head) / shortest_way_out);
    done = std::min(done, first_gradient - head);
    return first_gradient + p.load(r) - done + last_tail;
}

template <pipeline_graph Graph> constexpr duration v_placement_bound(const basic_problem<Graph>& p) {
    const auto ranks = p.graph.ranks();
    if (ranks < 2 || p.graph.stages() != 2 * ranks || !p.split_backward) return {};
    const auto& unit = p.costs[stage{0}];
    memory_size limit{};
    for (const rank r : p.graph.all_ranks())
        limit = std::max(limit, p.memory_limit[r]);
    if (limit.is_unlimited() || unit.activation <= memory_size{}) return {};
    for (const stage s : p.graph.all_stages()) {
        const auto& c = p.costs[s];
        if (p.rank_of(s) != placement::v{}.rank_of(s, ranks) || c != unit) return {};
        if (c.forward != c.backward_input || c.forward != c.backward_weight || c.weight_stash != c.activation ||
            stash_transfer(p, s))
            return {};
        if (!p.is_last(s) && (p.hop(s, s.next()) > duration{} || p.hop(s.next(), s) > duration{})) return {};
    }
    const double stashes = (limit + tolerance{}.at(p.memory_scale())) / unit.activation;
    const auto m = p.graph.microbatches();
    if (stashes >= static_cast<double>(2 * m)) return {}; // compared as a double: the quotient may be too large for a
                                                          // count
    const auto k = static_cast<std::size_t>(stashes);
    if (6 * m + 6 * ranks < 3 * k + 1) return {};
    return static_cast<double>(6 * m + 6 * ranks - 3 * k - 1) * unit.forward;
}

/// For each bound, the larger of the values in `a` and `b`.
constexpr structural_bounds strongest(const structural_bounds& a, const structural_bounds& b) {
    structural_bounds best;
    for (const auto& [name, member] : structural_bound_names)
        best.*member = std::max(a.*member, b.*member);
    return best;
}

/// `p` itself, or a copy with dynamic extents.
inline const problem& any_problem(const problem& p) { return p; }
template <pipeline_graph Graph> problem any_problem(const basic_problem<Graph>& p) { return to_problem(p); }

inline structural_bounds bounds_of_any(const problem& p, stop_check stop) {
    return {.device_load = graph_bound(p), .memory_area = holding_area_bound(p, stop)};
}

} // namespace detail

namespace detail {

/// Computes the bounds of `bounds_of`. Contract: stashes are only kept or offloaded as a whole.
template <pipeline_graph Graph>
constexpr structural_bounds relaxed_bounds_of(const basic_problem<Graph>& p, stop_check stop) {
    structural_bounds bounds;
    const bool span = p.objective == objective_kind::span;
    const auto paths = paths_of(p);
    const auto add = [&](rank r, const time_windows<Graph>& windows) {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r)
                bounds.stash_rounds =
                    std::max(bounds.stash_rounds, detail::stash_rounds_bound(p, s, paths.lifespan[s], windows));
        bounds.device_load = std::max(bounds.device_load, detail::device_load_bound(p, r, windows));
        bounds.warm_up = std::max(bounds.warm_up, detail::warm_up_bound(p, r, windows));
    };
    if (span) {
        for (const rank r : p.graph.all_ranks())
            if (r.value() == 0 || !stop()) add(r, time_windows<Graph>::of_rank(p, r));
    } else {
        const auto windows = time_windows<Graph>::step(p);
        for (const rank r : p.graph.all_ranks())
            if (r.value() == 0 || !stop()) add(r, windows);
    }
    bounds.v_placement = detail::v_placement_bound(p);
    if (!stop()) bounds.memory_area = memory_area_bound(p, stop);
    return bounds;
}

} // namespace detail

/// Computes all bounds that take little time. For plain problems, stashes are relaxed to be kept or offloaded as a
/// whole. Plain problems take O(ranks × stages × microbatches) for `span`, and O(stages × microbatches) times a
/// logarithm for `makespan`. Bounds of plain problems are usable in constant expressions. If the problem isn't plain,
/// only `graph_bound` and `holding_area_bound` are computed.
///
/// `stop` is polled between the ranks. The bounds deduced before a stop are valid. In plain problems, the first rank is
/// never left out.
template <pipeline_graph Graph>
[[nodiscard]] constexpr structural_bounds bounds_of(const basic_problem<Graph>& p, stop_check stop = {}) {
    if (!is_plain(p)) return detail::bounds_of_any(detail::any_problem(p), stop);
    auto bounds = detail::relaxed_bounds_of(without_storage(p, storage_relaxation::fastest_transfer), stop);
    // If costs describe the options, the two relaxations (`storage_relaxation`) are `p` itself. If nothing is
    // offloaded, the two relaxations are the same.
    if (!is_described_by_costs(p) && offloads_anything(p) && !stop())
        bounds = detail::strongest(
            bounds, detail::relaxed_bounds_of(without_storage(p, storage_relaxation::smallest_rest), stop));
    return bounds;
}

/// The bounds of `bounds_of`, and the bound of propagation. Takes milliseconds for up to 8 ranks and 16 microbatches,
/// and a second or two for 32 ranks and 128 microbatches. Deterministic. For problems with storage options,
/// `lower_bound` (in `optpipe/planner/bounds`) is higher.
template <pipeline_graph Graph> [[nodiscard]] structural_bounds strong_bounds_of(const basic_problem<Graph>& p) {
    auto bounds = bounds_of(p);
    if (const auto found = propagation_bound(detail::any_problem(p), bounds.best()); found > bounds.best())
        bounds.propagation = found;
    return bounds;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] structural_bounds bounds_of(const problem& p, stop_check stop = {});
[[nodiscard]] structural_bounds strong_bounds_of(const problem& p);
#endif

} // namespace optpipe
