#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe {

/// An estimate of a duration from samples.
struct estimate {
    /// Number of samples used, and number of samples left out as outliers.
    std::size_t count = 0;
    std::size_t outliers = 0;
    duration median{};
    /// An estimate of the standard deviation if samples are normally distributed: 1.4826 times the median absolute
    /// deviation.
    duration spread{};
    /// The true median lies between `low` and `high` with probability `confidence`.
    duration low{};
    duration high{};
    /// The confidence of the interval from `low` to `high`. The interval is the narrowest that reaches the requested
    /// confidence. With too few samples, the confidence is lower than requested. A confidence of 0.95 needs at least
    /// six samples.
    double confidence = 0.0;
};

namespace detail {

/// The median of at least one value, in any order. If the number of values is even, the mean of the two values in the
/// middle.
template <class Value> Value median_of(std::vector<Value> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return 0.5 * (*std::max_element(values.begin(), middle) + *middle);
}

/// 1.4826 times the median absolute deviation from `center`.
template <class Value> Value spread_of(std::vector<Value> values, Value center) {
    constexpr double normal_consistency = 1.4826;
    for (auto& value : values)
        value = std::max(value, center) - std::min(value, center);
    return normal_consistency * median_of(std::move(values));
}

/// The distance from the median at which outliers begin: a modified z-score of 3.5 (Iglewicz and Hoaglin, How to Detect
/// and Handle Outliers, 1993). The spread counts as at least 1 % of the median, as most samples may be equal.
template <class Value> Value outlier_distance(Value median, Value spread) {
    constexpr double most_spreads = 3.5;
    constexpr double least_spread = 0.01;
    return most_spreads * std::max(spread, least_spread * median);
}

/// A distribution-free confidence interval of the median. Among the sorted samples, `left_out` samples are below the
/// interval, and `left_out` samples are above it. The interval is exact, computed from the binomial distribution
/// (Conover, Practical Nonparametric Statistics, 3.2). With many samples, Hoeffding's inequality (1963) gives a
/// slightly wider interval.
struct median_interval {
    std::size_t left_out = 0;
    double confidence = 0.0;
};
[[nodiscard]] median_interval median_interval_of(std::size_t n, double confidence);

} // namespace detail

/// The median, spread and confidence interval of the samples that aren't outliers. Contract: there is at least one
/// sample.
[[nodiscard]] estimate estimate_of(std::vector<duration> samples, double confidence = 0.95);

/// The number of values at the beginning that differ from later values because of warm-up.
///
/// At most half of the values are left out, to minimize the standard error of the rest (MSER; White, An Effective
/// Truncation Heuristic for Bias Reduction in Simulation Output, Simulation 69, 1997). The last values left out must be
/// outliers among the rest, so noise alone causes no warm-up. O(n²).
[[nodiscard]] std::size_t warm_up_length(std::span<const double> values);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)

#include <cmath>

namespace optpipe {
namespace detail {

OPTPIPE_INLINE median_interval median_interval_of(std::size_t n, double confidence) {
    constexpr std::size_t most_exact = 1000; // up to this number n of samples, 2^-n is a normal number
    if (n > most_exact) {
        const auto samples = static_cast<double>(n);
        const double distance = std::sqrt(0.5 * samples * std::log(2.0 / (1.0 - confidence)));
        const double below = std::floor(0.5 * samples - distance);
        if (below >= 1.0) return {static_cast<std::size_t>(below) - 1, confidence};
    }
    // The probabilities that exactly k or at most k of n samples are below the median. At first, k is 0.
    double exactly = std::ldexp(1.0, -static_cast<int>(n));
    double at_most = exactly;
    median_interval widest{0, std::max(0.0, 1.0 - 2.0 * at_most)};
    for (std::size_t k = 1; 2 * k < n; ++k) {
        exactly *= static_cast<double>(n - k + 1) / static_cast<double>(k);
        at_most += exactly;
        if (1.0 - 2.0 * at_most < confidence) break;
        widest = {k, 1.0 - 2.0 * at_most};
    }
    return widest;
}

} // namespace detail

OPTPIPE_INLINE estimate estimate_of(std::vector<duration> samples, double confidence) {
    estimate e;
    if (samples.empty()) return e;
    const auto all = samples.size();
    const auto center = detail::median_of(samples);
    const auto far = detail::outlier_distance(center, detail::spread_of(samples, center));
    std::erase_if(samples, [&](duration d) { return d > center + far || d < center - far; });
    std::sort(samples.begin(), samples.end());
    const auto interval = detail::median_interval_of(samples.size(), confidence);
    e.count = samples.size();
    e.outliers = all - samples.size();
    e.median = detail::median_of(samples);
    e.spread = detail::spread_of(samples, e.median);
    e.low = samples[interval.left_out];
    e.high = samples[samples.size() - 1 - interval.left_out];
    e.confidence = interval.confidence;
    return e;
}

OPTPIPE_INLINE std::size_t warm_up_length(std::span<const double> values) {
    const auto rest_of = [&](std::size_t first) { return values.subspan(first); };
    const auto error_of = [](std::span<const double> rest) {
        const auto n = static_cast<double>(rest.size());
        double sum = 0.0;
        for (const double v : rest)
            sum += v;
        double squares = 0.0;
        for (const double v : rest)
            squares += (v - sum / n) * (v - sum / n);
        return squares / (n * n);
    };
    std::size_t best = 0;
    for (std::size_t first = 1; 2 * first <= values.size() && first < values.size(); ++first)
        if (error_of(rest_of(first)) < error_of(rest_of(best))) best = first;
    for (; best > 0; --best) {
        const std::vector<double> rest(values.begin() + static_cast<std::ptrdiff_t>(best), values.end());
        const double center = detail::median_of(rest);
        const double far = detail::outlier_distance(center, detail::spread_of(rest, center));
        if (std::abs(values[best - 1] - center) > far) break;
    }
    return best;
}

} // namespace optpipe
#endif
