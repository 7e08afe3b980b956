#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/profile/estimate.hpp"

#include <algorithm>
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

/// The planned duration of operations with this key.
[[nodiscard]] duration planned_time(const problem& p, const cost_key& key);
[[nodiscard]] duration planned_time(const problem& p, const rank_pair& pair);

} // namespace detail

/// For example "2F: planned 10, measured 13 (12.9 to 13.2), +30 %".
[[nodiscard]] std::string describe(const drifted_cost& d);

/// The operations and messages whose measured durations differ from the costs of the planned problem. Costs with too
/// few samples for the confidence aren't reported. Transfers measured on a shared link are ignored if the transfer was
/// also measured alone.
[[nodiscard]] std::vector<drifted_cost> drift(const problem& planned, const cost_profile& measured,
                                              const drift_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/format.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cmath>
#include <cstddef>

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

/// Adds a cost to `found` if it has drifted and `counts(key)` is true.
template <class Key, class Counts>
void add_drifted(std::vector<drifted_cost>& found, const problem& p, const std::vector<cost_estimate<Key>>& measured,
                 const Counts& counts, double confidence, const drift_options& options) {
    for (const auto& [key, now] : measured) {
        if (now.confidence < confidence || !counts(key)) continue;
        const auto planned = planned_time(p, key);
        const drifted_cost cost{to_string(p, key), planned, now};
        const bool differs = now.low > planned || now.high < planned;
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
        found, planned, operations, [&](const cost_key& key) { return !key.shared || !is_alone(key); }, confidence,
        options);
    detail::add_drifted(
        found, planned, measured.messages(confidence), [](const rank_pair&) { return true; }, confidence, options);
    return found;
}

} // namespace optpipe
#endif
