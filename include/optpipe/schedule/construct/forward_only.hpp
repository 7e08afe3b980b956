#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace optpipe {

/// The forward that comes first if a rank can start several at the same instant.
enum class forward_priority : std::uint8_t {
    latest_stage,   ///< depth first: microbatches leave the rank early
    earliest_stage, ///< breadth first: later ranks get work early
};

/// Every forward once and nothing else, for evaluation and inference: a list schedule. Each rank takes the forward that
/// can start first, ties decided by `priority`; microbatches are in FIFO order. It isn't a valid schedule of the
/// problem, as it has no backwards; lower it with `lowering_options::forward_only`. O(S² M) for S stages and M
/// microbatches.
[[nodiscard]] schedule forward_schedule(const problem& p, forward_priority priority = forward_priority::latest_stage);

/// The problem for forwards alone: nothing is stashed, so nothing is offloaded or recomputed. Functions that measure or
/// draw schedules of a problem accept forwards alone with this problem.
[[nodiscard]] problem forward_problem(problem p);

/// All violations in a schedule of forwards alone, as reported by `validate`, except those about backwards and memory,
/// which it doesn't have.
[[nodiscard]] std::vector<violation> validate_forward_only(const problem& p, const schedule& s, tolerance t = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/construct/lane_builder.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

namespace optpipe {

OPTPIPE_INLINE schedule forward_schedule(const problem& p, forward_priority priority) {
    const auto stages = p.graph.stages();
    schedule made{p.graph, {}};
    per_stage<std::size_t> next(stages, 0);
    detail::known_ends ends{p.graph};
    per_rank<duration> free(p.graph.ranks());
    const bool latest = priority == forward_priority::latest_stage;
    for (std::size_t left = stages * p.graph.microbatches(); left > 0; --left) {
        auto best = duration::unlimited();
        stage chosen{};
        for (const stage s : p.graph.all_stages()) {
            if (next[s] == p.graph.microbatches()) continue;
            const auto ready = input_time(p, forward(s, microbatch{next[s]}), ends);
            const auto start = std::max(ready, free[p.rank_of(s)]);
            if (start.is_unlimited() || start > best || (start == best && !latest)) continue;
            best = start;
            chosen = s;
        }
        const auto end = best + p.costs[chosen].forward;
        const auto op = forward(chosen, microbatch{next[chosen]++});
        made.operations.push_back({op, best, end});
        ends.set(op, end);
        free[p.rank_of(chosen)] = end;
    }
    return made;
}

OPTPIPE_INLINE problem forward_problem(problem p) {
    for (const stage s : p.graph.all_stages()) {
        auto costs = p.costs[s];
        costs.activation = costs.weight_stash = memory_size{};
        p.set_stage(s, costs);
    }
    return p;
}

OPTPIPE_INLINE std::vector<violation> validate_forward_only(const problem& p, const schedule& s, tolerance t) {
    std::vector<violation> found;
    for (const auto& timed : s.operations)
        if (timed.op.kind != operation_kind::forward)
            found.push_back({"operations", to_string(timed.op) + " isn't a forward"});
    const auto is_of_backwards = [](broken_rule rule) {
        constexpr broken_rule all[] = {broken_rule::wrong_backward, broken_rule::split_forbidden,
                                       broken_rule::full_forbidden, broken_rule::storage_not_followed,
                                       broken_rule::device_memory};
        return std::find(std::begin(all), std::end(all), rule) != std::end(all);
    };
    for_each_fault(
        p, s,
        [&](const fault& f) {
            if (!is_of_backwards(f.rule)) found.push_back(violation_of(f));
        },
        t);
    return found;
}

} // namespace optpipe
#endif
