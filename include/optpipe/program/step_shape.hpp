#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/stage_groups.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace optpipe {

/// What the operations of a step depend on, beyond the numbers of stages and microbatches. The default is that of plain
/// problems (`is_plain`), and of those that are plain but for pairs.
struct step_shape {
    edges::any feeds{};
    /// The gradients that each stage computes; empty if all are full.
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

[[nodiscard]] inline step_shape shape_of(const problem& p) {
    step_shape shape;
    const bool is_full = std::all_of(p.costs.begin(), p.costs.end(),
                                     [](const stage_costs& c) { return c.gradients == gradient_kind::full; });
    if (p.is_simple() && is_full) return shape;
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
