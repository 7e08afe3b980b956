#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/time/noise.hpp"

#include <cstddef>

namespace optpipe {

/// What a plan should be good at where durations vary: a percentile of the step time.
struct robust_options {
    noise_model noise{.spread = 0.1, .rank_correlation = 0.25};
    /// Above 0, at most 100.
    double percentile = 95.0;
    /// Random steps by which schedules are compared; ten times as many confirm the choice, or as many as a tenth of the
    /// time limit is enough for.
    std::size_t samples = 100;
    /// Without a time limit: so many operations are timed in the steps by which moves are judged; 10 million are a
    /// second's work or two.
    std::size_t effort = 10'000'000;
};

/// Step times under noise, of a robust plan and of the plan that it is compared with (the start if there is one, else
/// the best without noise), in steps that played no part in the search.
struct robust_result {
    duration mean{};
    duration percentile{};
    /// Of that plan: its objective, and the two numbers above.
    duration nominal_objective{};
    duration nominal_mean{};
    duration nominal_percentile{};
};

} // namespace optpipe
