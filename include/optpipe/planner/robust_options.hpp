#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/time/noise.hpp"

#include <cstddef>

namespace optpipe {

/// The objective of a plan under random durations: a percentile of the step time.
struct robust_options {
    noise_model noise{.spread = 0.1, .rank_correlation = 0.25};
    /// In (0, 100].
    double percentile = 95.0;
    /// Number of random steps by which schedules are compared. Ten times as many confirm the choice, or the number that
    /// a tenth of the time limit allows.
    std::size_t samples = 100;
    /// Limit without a time limit: the number of operations timed in the steps that compare moves. 10 million take one
    /// or two seconds.
    std::size_t effort = 10'000'000;
};

/// Step times under noise of the robust plan and of its reference (the start if there is one, else the best plan
/// without noise), in steps that weren't used in the search.
struct robust_result {
    duration mean{};
    duration percentile{};
    /// The reference: its objective, mean and percentile.
    duration nominal_objective{};
    duration nominal_mean{};
    duration nominal_percentile{};
};

} // namespace optpipe
