#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/io/view_window.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

namespace detail {

/// The operations and memory of one rank. Each list is sorted by start.
struct rank_timeline {
    std::vector<timed_operation> compute;
    std::vector<timed_operation> offloads;
    std::vector<timed_operation> reloads;
    std::vector<memory_point> device_memory;
    std::vector<memory_point> host_memory;

    [[nodiscard]] bool has_transfers() const { return !offloads.empty() || !reloads.empty(); }
};

/// The parts of a schedule that figures show. Operations that the problem doesn't have are left out.
struct timeline {
    per_rank<rank_timeline> ranks;
    duration begin{};
    /// The end of the last operation or transfer, but at most the end of the window.
    duration end{};

    [[nodiscard]] bool has_transfers() const {
        return std::any_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.has_transfers(); });
    }
};

inline std::vector<timed_operation>& list_for(rank_timeline& lists, operation_kind kind) {
    switch (kind) {
    case operation_kind::offload: return lists.offloads;
    case operation_kind::reload: return lists.reloads;
    case operation_kind::forward:
    case operation_kind::backward_input:
    case operation_kind::backward_weight:
    case operation_kind::backward:
    case operation_kind::recompute: break;
    }
    return lists.compute;
}

/// The part of a curve within a window. The first point of the result has the level at the start of the window.
inline std::vector<memory_point> within(const std::vector<memory_point>& curve, const view_window& window) {
    std::vector<memory_point> result;
    for (const auto& point : curve) {
        if (point.time >= window.to) break;
        if (!result.empty() && point.time <= window.from) result.clear();
        result.push_back({std::max(point.time, window.from), point.level});
    }
    return result;
}

inline void restrict_to(timeline& t, const view_window& window) {
    for (const rank r : t.ranks.indices()) {
        auto& lists = t.ranks[r];
        if (!window.shows(r)) lists = {};
        for (auto* list : {&lists.compute, &lists.offloads, &lists.reloads})
            std::erase_if(*list, [&](const timed_operation& timed) { return !window.shows(timed); });
        lists.device_memory = within(lists.device_memory, window);
        lists.host_memory = within(lists.host_memory, window);
    }
    t.end = std::min(t.end, window.to);
    t.begin = std::min(std::max(window.from, duration{}), t.end);
}

inline timeline timeline_of(const problem& p, const schedule& s, const view_window& window = {}) {
    timeline result{per_rank<rank_timeline>(p.graph.ranks()), {}, {}};
    schedule shown{p.graph, {}};
    auto sorted = s.operations;
    std::sort(sorted.begin(), sorted.end(), starts_before);
    const operation_numbering<any_graph> possible{p.graph};
    for (const auto& timed : sorted) {
        if (!possible.contains(timed.op)) continue;
        const rank r = p.rank_of(timed.op.stage);
        list_for(result.ranks[r], timed.op.kind).push_back(timed);
        shown.operations.push_back(timed);
        result.end = std::max(result.end, timed.end);
    }
    const auto slack = time_slack(p, s);
    auto device = curves_of(p, shown, memory_kind::device, slack);
    auto host = curves_of(p, shown, memory_kind::host, slack);
    for (const rank r : p.graph.all_ranks()) {
        result.ranks[r].device_memory = std::move(device[r]);
        result.ranks[r].host_memory = std::move(host[r]);
    }
    restrict_to(result, window);
    return result;
}

/// Rounds `least` up to 1, 2 or 5 times a power of ten. `least` must be positive.
inline double round_step(double least) {
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= least) return factor * power;
    return 10.0 * power;
}

/// A unit after a space, such as " ms"; empty without a unit.
inline std::string with_space(const std::string& unit) { return unit.empty() ? "" : " " + unit; }
/// A unit in brackets, such as " [ms]"; empty without a unit.
inline std::string in_brackets(const std::string& unit) { return unit.empty() ? "" : " [" + unit + "]"; }

} // namespace detail
} // namespace optpipe
