#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>

namespace optpipe::detail {

/// How partitions are searched. Not tuned, unless a comment says otherwise.
struct partition_parameters {
    /// Share of the time limit for short plans of many partitions, in (0, 1); the rest is for the best partitions.
    double search_share = 0.5;
    /// Share of that time in which all pipelines are planned in rotation; the rest is for the pipeline that is best
    /// then.
    double round_robin_share = 0.5;
    /// The first plans of all pipelines together take 1 / `first_part` of that time. Each later plan takes as long as
    /// the first plan of its pipeline needed to come within `nearness` (relative) of its final objective, because the
    /// first schedules of large problems say little. It takes at least 1 / `most_plans_in_time` of that time.
    double first_part = 4.0;
    double nearness = 0.01;
    double most_plans_in_time = 40.0;
    /// Number of partitions that are planned for longer; each round keeps half of them and doubles their time
    /// (successive halving). It is small because every plan starts anew: on 12 random pipelines, 2 led to 1.2 % shorter
    /// steps than 4, in 5 s.
    std::size_t finalists = 2;
    /// Work for each pipeline without a time limit, in plans of up to a few seconds. A plan that is proven, and the
    /// bounds of a partition's neighbours, count as `short_work`.
    double most_plans = 8.0;
    double short_work = 0.125;
    /// Limit up to which all partitions of the pipelines are listed: their bounds take a second or two for 16 stages
    /// with 64 microbatches.
    std::size_t most_listed = 256;
    /// Number of neighbours of a partition whose bounds are computed, the most even first: with 16 stages or more there
    /// are hundreds.
    std::size_t most_neighbours = 64;
    /// Number of partitions whose work is compared to find the initial ones of a pipeline, and number of partitions
    /// that are tested to fit: with hundreds of stages this would otherwise take minutes.
    std::size_t most_looked_at = 1'000'000;
    std::size_t most_fitted = 10'000;
};

} // namespace optpipe::detail
