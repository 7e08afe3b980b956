#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/stage_groups.hpp"

#include <vector>

namespace optpipe {

/// Properties that determine a step's operations, besides the numbers of stages and microbatches. The default describes
/// plain problems (`is_plain`), with or without pairs.
struct step_shape {
    edges::any feeds{};
    /// The kind of gradients that each stage computes. Empty if all stages compute all gradients.
    std::vector<gradient_kind> gradients{};
    microbatch_list<> microbatches{};
    stage_groups<> groups{};

    [[nodiscard]] gradient_kind gradients_of(stage s) const {
        return gradients.empty() ? gradient_kind::full : gradients[s.position()];
    }
    [[nodiscard]] bool carries_gradients(const edge& e) const {
        return gradients_of(e.from) != gradient_kind::none && gradients_of(e.to) != gradient_kind::none;
    }
    friend bool operator==(const step_shape&, const step_shape&) = default;
};

[[nodiscard]] step_shape shape_of(const problem& p);

} // namespace optpipe

#if OPTPIPE_DEFINES(programs)
#include <utility>

namespace optpipe {

OPTPIPE_INLINE step_shape shape_of(const problem& p) {
    step_shape shape;
    if (is_plain_without_pairs(p)) return shape;
    std::vector<edge> all;
    for (const stage s : p.graph.all_stages()) {
        p.graph.for_each_edge_into(s, [&](const edge& each) { all.push_back(each); });
        shape.gradients.push_back(p.costs[s].gradients);
    }
    shape.feeds = edges::any{p.graph.stages(), std::move(all)};
    shape.microbatches = p.microbatches;
    shape.groups = p.groups;
    return shape;
}

} // namespace optpipe
#endif
