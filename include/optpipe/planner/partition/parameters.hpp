#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::detail {

/// How partitions are searched. Not tuned, unless a comment says otherwise.
struct partition_parameters {
    /// Share of the time limit for short plans of many partitions, in (0, 1). The remaining time is for one long plan:
    /// the search of every plan starts anew. On 4 random models in little memory (8 s of processor time each), steps
    /// were 1.2 % shorter with 0.3 than with 0.5. The models are those on which 0.5 had left wide gaps.
    double search_share = 0.3;
    /// Share of the time limit for the bound on all partitions, in (0, 1). The bound takes some milliseconds, or up to
    /// a few seconds for hundreds of layers in a loop.
    double bound_share = 0.05;
    /// Share of the time limit for propagation that raises this bound, in (0, 1). Seldom used up, except in loops with
    /// dozens of layers and little memory.
    double order_share = 0.05;
    /// During this share of the time for short plans, all pipelines are planned in rotation. In the remaining time,
    /// only the pipeline with the best plan is planned.
    double round_robin_share = 0.5;
    /// The first plans of all pipelines together take 1 / `first_part` of the time for short plans. A later plan takes
    /// the time in which the same pipeline's first plan came within `nearness` (relative) of its result. The first
    /// schedules of a large problem say little about the partition. If all partitions are listed, a later plan takes at
    /// most 1 / (number of partitions) of the time for short plans. A later plan takes at least 1 /
    /// `most_plans_in_time` of the time for short plans. With many partitions, some may not be tried.
    double first_part = 4.0;
    double nearness = 0.01;
    double most_plans_in_time = 40.0;
    /// The work for each pipeline without a time limit. The unit is a plan, which takes up to a few seconds. A plan
    /// that ends with a proof counts only as `short_work` plans. Computing the bounds of all neighbours of a partition
    /// counts as `short_work` plans, too.
    double most_plans = 8.0;
    double short_work = 0.125;
    /// If the pipelines have at most this number of partitions in all, all partitions are listed. The bounds of all
    /// partitions take a second or two for 16 stages with 64 microbatches.
    std::size_t most_listed = 256;
    /// Bounds are computed for at most this number of a partition's neighbours, the most even neighbours first. With 16
    /// stages or more, a partition has hundreds of neighbours.
    std::size_t most_neighbours = 64;
    /// Limits on the search for a pipeline's initial partitions, which would take minutes with hundreds of stages. The
    /// work of at most `most_looked_at` partitions is compared. At most `most_fitted` partitions are tested for fitting
    /// in memory.
    std::size_t most_looked_at = 1'000'000;
    std::size_t most_fitted = 10'000;
};

} // namespace optpipe::detail
