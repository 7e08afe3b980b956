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

/// A list schedule that has every forward once and nothing else, for evaluation and inference. Each rank takes the
/// forward that can start first; `priority` decides ties. Microbatches are in FIFO order. It isn't a valid schedule of
/// the problem, as it has no backwards; lower it with `lowering_options::forward_only`. O(S M log R) for S stages, M
/// microbatches and R ranks.
[[nodiscard]] schedule forward_schedule(const problem& p, forward_priority priority = forward_priority::latest_stage);

/// The problem for forwards alone: no stage has a backward, and nothing is stashed, offloaded or recomputed. Keys and
/// values remain until their sequence has left the stage, and data that an edge holds remains until the stage at its
/// end has used it. Functions that plan, measure or draw schedules of a problem accept schedules of forwards alone with
/// this problem.
[[nodiscard]] problem forward_problem(problem p);

/// All violations in a schedule of forwards alone, as reported by `validate` for `forward_problem(p)`.
[[nodiscard]] std::vector<violation> validate_forward_only(const problem& p, const schedule& s, tolerance t = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/dispatch/list_schedule.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace optpipe {

namespace detail {

/// Each rank starts the first of its stages, by priority, that has an input.
class forward_policy {
public:
    forward_policy(const problem& p, forward_priority priority, running_step<any_graph>& step)
        : p_{p}, step_{step}, stages_{stages_by_rank(p.graph)}, next_(p.graph.stages(), 0), made_{p.graph, {}} {
        if (priority == forward_priority::latest_stage)
            for (auto& own : stages_)
                std::reverse(own.begin(), own.end());
    }

    void serve(rank r) {
        if (!step_.is_free(operation_kind::forward, r)) return;
        for (const stage s : stages_[r]) {
            const auto op = forward(s, microbatch{next_[s]});
            if (next_[s] == p_.graph.microbatches() || step_.arrival(op) > step_.now()) continue;
            ++next_[s];
            step_.start(op, r);
            made_.operations.push_back({op, step_.now(), step_.end_of(op)});
            return;
        }
    }
    void end(const operation& /*op*/, rank /*where*/) {}
    schedule take() && { return std::move(made_); }

private:
    const problem& p_;
    running_step<any_graph>& step_;
    per_rank<bounded_vector<stage, dynamic>> stages_;
    per_stage<std::size_t> next_;
    schedule made_;
};

} // namespace detail

OPTPIPE_INLINE schedule forward_schedule(const problem& p, forward_priority priority) {
    detail::running_step<any_graph> step{p, per_rank<memory_size>(p.graph.ranks(), memory_size::unlimited())};
    detail::forward_policy policy{p, priority, step};
    detail::list_schedule(step, policy);
    return std::move(policy).take();
}

OPTPIPE_INLINE problem forward_problem(problem p) {
    for (const stage s : p.graph.all_stages()) {
        auto costs = p.costs[s];
        costs.gradients = gradient_kind::none;
        costs.backward_input = costs.backward_weight = duration{};
        costs.activation = costs.weight_stash = memory_size{};
        p.set_stage(s, costs);
    }
    p.overlaps = {};
    return p;
}

OPTPIPE_INLINE std::vector<violation> validate_forward_only(const problem& p, const schedule& s, tolerance t) {
    std::vector<violation> found;
    for (const auto& timed : s.operations)
        if (timed.op.kind != operation_kind::forward)
            found.push_back({"operations", to_string(timed.op) + " isn't a forward"});
    if (!found.empty()) return found;
    for_each_fault(
        forward_problem(p), s, [&](const fault& f) { found.push_back(violation_of(f)); }, t);
    return found;
}

} // namespace optpipe
#endif
