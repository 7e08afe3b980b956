#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/time/noise.hpp"

#include <cstddef>

namespace optpipe {

/// The objective of a plan under random durations. The objective is a percentile of the step time.
struct robust_options {
    noise_model noise{.spread = 0.1, .rank_correlation = 0.25};
    /// The percentile to minimize, in (0, 100].
    double percentile = 95.0;
    /// Number of random steps in which schedules are compared. The best schedule is confirmed in 10 · `samples` further
    /// steps, in at most a tenth of the time limit.
    std::size_t samples = 100;
    /// Number of operations to time for comparing moves, without a time limit. 10 million take one or two seconds.
    std::size_t effort = 10'000'000;
};

/// Step times of the robust plan and of its reference under noise. The times are measured in random steps that the
/// search didn't use. The reference is the start or, without a start, the best plan without noise.
struct robust_result {
    duration mean{};
    duration percentile{};
    /// Objective, mean and percentile of the reference.
    duration nominal_objective{};
    duration nominal_mean{};
    duration nominal_percentile{};
};

} // namespace optpipe
