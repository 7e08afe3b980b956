#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/profile/estimate.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace optpipe {

/// The conditions under which a cost counts as drifted.
struct drift_options {
    /// Probability, from 0 to 1, of no report without drift. For k costs, each interval has the confidence 1 − (1 −
    /// `confidence`)/k (Bonferroni).
    double confidence = 0.95;
    /// The least change to report. The change of an operation is a share of its planned duration. The change of a
    /// message is a share of the mean duration of a forward. If changes are smaller, another plan hardly gains
    /// anything. Not tuned.
    double least_change = 0.03;
};

/// An operation or message whose measured duration differs from the planned one.
struct drifted_cost {
    /// For example "2F", "0OFFLOAD", "message 0 to 1".
    std::string name;
    duration planned{};
    estimate measured{};

    /// The absolute value of the change.
    [[nodiscard]] duration change() const {
        return std::max(measured.median, planned) - std::min(measured.median, planned);
    }
    /// The change, relative to the planned duration; infinite if the planned duration is 0.
    [[nodiscard]] double relative_change() const { return measured.median / planned - 1.0; }
};

namespace detail {

/// The probability that a variable with Student's t distribution is between -t and t. For integral degrees of freedom,
/// the distribution function is a finite sum (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
/// 26.7.4).
[[nodiscard]] double student_probability(double t, std::size_t degrees_of_freedom);
/// The confidence of the largest t interval of the mean that excludes `planned`. 0 if there are fewer than two values.
[[nodiscard]] double confidence_of_change(const std::vector<duration>& values, duration planned);

/// The planned duration of operations with this key.
[[nodiscard]] duration planned_time(const problem& p, const cost_key& key);
[[nodiscard]] duration planned_time(const problem& p, const rank_pair& pair);

} // namespace detail

/// For example "2F: planned 10, measured 13 (12.9 to 13.2), +30 %".
[[nodiscard]] std::string describe(const drifted_cost& d);

/// The operations and messages whose measured durations differ from the costs of the planned problem. Costs with too
/// few samples for the confidence aren't reported.
///
/// The operations of a step may be slow together, as on a hot device. So two tests must agree. The interval of a cost's
/// samples excludes the planned duration. And so does Student's t interval of the medians of the steps. The second test
/// assumes that steps are independent, and that the medians of steps are about normally distributed. It needs at least
/// two steps. Example: the medians of steps have a standard deviation of 1 %, and 16 costs are compared with a
/// confidence of 0.99. Then, the t interval is ±23 % after 3 steps, ±3.1 % after 6 steps, and ±1.6 % after 10 steps.
///
/// Transfers measured on a shared link are ignored if the transfer was also measured alone.
[[nodiscard]] std::vector<drifted_cost> drift(const problem& planned, const cost_profile& measured,
                                              const drift_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/format.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cmath>
#include <iterator>
#include <map>
#include <numbers>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE std::string describe(const drifted_cost& d) {
    constexpr int digits = 4;
    const double percent = std::round(1000.0 * d.relative_change()) / 10.0;
    const auto change = (percent > 0.0 ? ", +" : ", ") + format_number(percent, digits) + " %";
    return d.name + ": planned " + format_number(d.planned, digits) + ", measured " +
           format_number(d.measured.median, digits) + " (" + format_number(d.measured.low, digits) + " to " +
           format_number(d.measured.high, digits) + ")" + (std::isfinite(percent) ? change : "");
}

namespace detail {

OPTPIPE_INLINE double student_probability(double t, std::size_t degrees_of_freedom) {
    const auto n = static_cast<double>(degrees_of_freedom);
    const bool is_odd = degrees_of_freedom % 2 == 1;
    const double angle = std::atan(t / std::sqrt(n));
    const double cosine = std::cos(angle);
    double term = is_odd ? cosine : 1.0;
    double sum = 0.0;
    for (double k = is_odd ? 1.0 : 0.0; k + 2.0 <= n; k += 2.0) {
        sum += term;
        term *= (k + 1.0) / (k + 2.0) * cosine * cosine;
    }
    sum *= std::sin(angle);
    return is_odd ? 2.0 * std::numbers::inv_pi * (angle + sum) : sum;
}

OPTPIPE_INLINE double confidence_of_change(const std::vector<duration>& values, duration planned) {
    if (values.size() < 2) return 0.0;
    const auto n = static_cast<double>(values.size());
    double mean = 0.0;
    for (const auto value : values)
        mean += value.value() / n;
    double squares = 0.0;
    for (const auto value : values)
        squares += (value.value() - mean) * (value.value() - mean);
    const double change = std::abs(mean - planned.value());
    const double error = std::sqrt(squares / (n * (n - 1.0))); // of the mean
    return change > 0.0 ? student_probability(change / error, values.size() - 1) : 0.0;
}

/// The median duration of each cost in each step after the warm-up.
template <class Key>
std::map<Key, std::vector<duration>> medians_of_steps(const cost_profile& profile,
                                                      std::vector<cost_sample<Key>> measured_costs::*which) {
    std::map<Key, std::vector<duration>> medians;
    const auto& steps = profile.measured_steps();
    for (auto step = std::next(steps.begin(), static_cast<std::ptrdiff_t>(profile.warm_up_steps()));
         step != steps.end(); ++step) {
        std::map<Key, std::vector<duration>> samples;
        for (const auto& sample : step->second.*which)
            samples[sample.of].push_back(sample.took);
        for (auto& [key, durations] : samples)
            medians[key].push_back(median_of(std::move(durations)));
    }
    return medians;
}

OPTPIPE_INLINE duration planned_time(const problem& p, const cost_key& key) {
    if (const auto* pair = overlap_of(p, key)) return pair->duration;
    const operation op{key.stage, key.kind, {}, key.storage.value_or(storage_index{})};
    const bool without_extra = is_gradient(key.kind) && !key.storage;
    return usual_duration(p, op) - (without_extra ? storage_of(p, op).backward_extra : duration{});
}
OPTPIPE_INLINE duration planned_time(const problem& p, const rank_pair& pair) { return p.p2p(pair.from, pair.to); }

/// The duration by which the change of a cost is divided.
inline duration scale_of(const problem&, const cost_key&, duration planned) { return planned; }
inline duration scale_of(const problem& p, const rank_pair&, duration) {
    duration sum{};
    for (const auto& costs : p.costs)
        sum += costs.forward;
    return sum / static_cast<double>(p.costs.size());
}

/// Adds a cost to `found` if it has drifted and `counts(key)` is true. `by_step` lists the medians of steps.
template <class Key, class Counts>
void add_drifted(std::vector<drifted_cost>& found, const problem& p, const std::vector<cost_estimate<Key>>& measured,
                 const std::map<Key, std::vector<duration>>& by_step, const Counts& counts, double confidence,
                 const drift_options& options) {
    for (const auto& [key, now] : measured) {
        if (now.confidence < confidence || !counts(key)) continue;
        const auto planned = planned_time(p, key);
        const drifted_cost cost{to_string(p, key), planned, now};
        const bool differs =
            (now.low > planned || now.high < planned) && confidence_of_change(by_step.at(key), planned) >= confidence;
        if (differs && cost.change() > options.least_change * scale_of(p, key, planned)) found.push_back(cost);
    }
}

} // namespace detail

OPTPIPE_INLINE std::vector<drifted_cost> drift(const problem& planned, const cost_profile& measured,
                                               const drift_options& options) {
    // All comparisons together have the confidence `options.confidence`.
    const auto comparisons = static_cast<double>(std::max<std::size_t>(1, measured.numbers()));
    const double confidence = 1.0 - (1.0 - options.confidence) / comparisons;
    const auto operations = measured.operations(confidence);
    const auto is_alone = [&](const cost_key& key) {
        return std::any_of(operations.begin(), operations.end(), [&](const auto& other) {
            return other.of == cost_key{key.stage, key.kind, key.storage, false};
        });
    };
    std::vector<drifted_cost> found;
    detail::add_drifted(
        found, planned, operations, detail::medians_of_steps(measured, &measured_costs::operations),
        [&](const cost_key& key) { return !key.shared || !is_alone(key); }, confidence, options);
    detail::add_drifted(
        found, planned, measured.messages(confidence), detail::medians_of_steps(measured, &measured_costs::messages),
        [](const rank_pair&) { return true; }, confidence, options);
    return found;
}

} // namespace optpipe
#endif
