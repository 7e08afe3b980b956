#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan_result.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// A partition of a model's layers among the stages of a pipeline, and its plan.
struct partition_plan {
    /// Index of the pipeline that the plan is for.
    std::size_t chosen = 0;
    /// Number of layers on each stage of the chosen pipeline.
    std::vector<std::size_t> layers{};
    /// The stage of each layer. Without branches, every stage holds consecutive layers.
    std::vector<stage> stage_of{};
    /// The pipeline with the layers of the partition (`with_layers`). `planned` is the plan of this pipeline.
    problem pipeline{};
    plan_result planned{};
    /// A lower bound on the objectives of all partitions (`partition_bound`). If all partitions were considered, the
    /// bound is at least the least bound of any partition. `planned.bound` holds for this partition only.
    duration bound{};
    /// Number of partitions that were planned.
    std::size_t tried = 0;
    /// Duration of the complete search, in seconds. `planned.seconds` is only the duration of the plan's own search.
    double seconds = 0.0;
};

} // namespace optpipe
