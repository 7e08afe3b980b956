#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/dispatch_options.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <vector>

namespace optpipe {

/// A list schedule that has every forward once and nothing else, for evaluation and inference. Each rank takes the
/// forward that can start first. `preferred` decides ties. If the deepest stage is preferred, microbatches leave the
/// rank early. If the shallowest stage is preferred, later ranks get work early. Microbatches are in FIFO order, and
/// memory has no limit. The result isn't a valid schedule of the problem: it has no backwards. Lower it with
/// `lowering_options::forward_only`. Takes O(S M log R) for S stages, M microbatches and R ranks.
[[nodiscard]] schedule forward_schedule(const problem& p,
                                        forward_preference preferred = forward_preference::deepest_stage);

/// The problem for forwards alone. No stage has a backward, and nothing is stashed, offloaded or recomputed. Attention
/// keys and values remain until their sequence has left the stage. The memory of an edge is held until the stage at its
/// end has used the data.
[[nodiscard]] problem forward_problem(problem p);

/// All violations in a schedule of forwards alone, as reported by `validate` for `forward_problem(p)`.
[[nodiscard]] std::vector<violation> validate_forward_only(const problem& p, const schedule& s, tolerance t = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/schedule/dispatch/graph_dispatcher.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <string>

namespace optpipe {

OPTPIPE_INLINE schedule forward_schedule(const problem& p, forward_preference preferred) {
    auto alone = forward_problem(p);
    for (auto& limit : alone.memory_limit)
        limit = memory_size::unlimited();
    auto options = first_options(alone);
    options.depth = dispatch_options::no_limit;
    options.forwards = preferred;
    return *simulate(alone, {p.graph, graph_dispatcher<any_graph>{alone, options}.run()});
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
