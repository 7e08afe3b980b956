#pragma once

#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The layers of a model, and the pipelines that they may be divided among: the same devices and microbatches, with
/// their stages placed in one way or another.
struct partition_problem {
    std::vector<layer_costs> layers{};
    /// Their costs and storage options aren't used, those of the layers are; memory limits are those of the devices.
    std::vector<problem> pipelines{};
};

/// The pipeline `p` with its stages placed otherwise. What belongs to a stage (its costs and storage options) is to be
/// given anew.
template <placement_policy Placement> [[nodiscard]] problem with_placement(problem p, const Placement& where) {
    p.graph = to_any_graph(graph<dynamic, dynamic, Placement>{p.graph.ranks(), p.graph.microbatches(), where});
    p.costs = per_stage<stage_costs>(p.graph.stages());
    p.storage = per_stage<storage_list<false>>(p.graph.stages());
    return p;
}

/// The usual placements that `layers` layers are enough for: one stage per rank, and two of them, in a loop and in a v.
[[nodiscard]] inline std::vector<problem> usual_placements(const problem& p, std::size_t layers) {
    std::vector<problem> pipelines{with_placement(p, placement::linear{})};
    if (p.graph.ranks() > 1 && layers >= 2 * p.graph.ranks()) {
        pipelines.push_back(with_placement(p, placement::loop<>{2}));
        pipelines.push_back(with_placement(p, placement::v{}));
    }
    return pipelines;
}

} // namespace optpipe
