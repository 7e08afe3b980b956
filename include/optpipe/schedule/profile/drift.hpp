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
    /// Probability, from 0 to 1, that nothing is reported if nothing has drifted. Each of k costs is compared with an
    /// interval of confidence 1 − (1 − `confidence`)/k (Bonferroni).
    double confidence = 0.95;
    /// The least change to report. The change of an operation is a share of its planned duration. The change of a
    /// message is a share of the mean duration of a forward. If changes are smaller, another plan hardly gains
    /// anything. Not tuned.
    double least_change = 0.03;
};

/// An operation, or a message, whose duration differs from the planned one.
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
/// few samples for the confidence aren't reported. Transfers that shared their link are compared only if no transfer
/// was alone on it.
[[nodiscard]] std::vector<drifted_cost> drift(const problem& planned, const cost_profile& measured,
                                              const drift_options& options = {});

/// The costs that have drifted since an earlier profile. A cost has drifted if its confidence interval doesn't overlap
/// its interval in the earlier profile.
[[nodiscard]] std::vector<drifted_cost> drift(const problem& p, const cost_profile& planned,
                                              const cost_profile& measured, const drift_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/format.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cmath>
#include <cstddef>
#include <optional>

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

/// Adds the drifted costs to `found`. `planned(key)` is an interval of the planned cost, empty if the cost is unknown.
template <class Key, class Planned>
void add_drifted(std::vector<drifted_cost>& found, const problem& p, const std::vector<cost_estimate<Key>>& measured,
                 const Planned& planned, double confidence, const drift_options& options) {
    for (const auto& [key, now] : measured) {
        const std::optional<estimate> before = planned(key);
        if (!before || now.confidence < confidence || before->confidence < confidence) continue;
        const auto change = std::max(now.median, before->median) - std::min(now.median, before->median);
        const bool differ = now.low > before->high || now.high < before->low;
        if (differ && change > options.least_change * scale_of(p, key, before->median))
            found.push_back({to_string(p, key), before->median, now});
    }
}

/// The confidence needed for each of several comparisons, so that all comparisons together have the confidence
/// `options.confidence`.
inline double each_confidence(const drift_options& options, std::size_t comparisons) {
    return 1.0 - (1.0 - options.confidence) / static_cast<double>(std::max<std::size_t>(1, comparisons));
}

} // namespace detail

OPTPIPE_INLINE std::vector<drifted_cost> drift(const problem& planned, const cost_profile& measured,
                                               const drift_options& options) {
    const double confidence = detail::each_confidence(options, measured.numbers());
    const auto operations = measured.operations(confidence);
    const auto exactly = [&](const auto& key) {
        const auto time = detail::planned_time(planned, key);
        return std::optional<estimate>{{1, 0, time, {}, time, time, 1.0}};
    };
    const auto is_alone = [&](const cost_key& key) {
        return std::any_of(operations.begin(), operations.end(), [&](const auto& other) {
            return other.of == cost_key{key.stage, key.kind, key.storage, false};
        });
    };
    std::vector<drifted_cost> found;
    detail::add_drifted(
        found, planned, operations,
        [&](const cost_key& key) { return key.shared && is_alone(key) ? std::nullopt : exactly(key); }, confidence,
        options);
    detail::add_drifted(found, planned, measured.messages(confidence), exactly, confidence, options);
    return found;
}

OPTPIPE_INLINE std::vector<drifted_cost> drift(const problem& p, const cost_profile& planned,
                                               const cost_profile& measured, const drift_options& options) {
    const double confidence = detail::each_confidence(options, measured.numbers());
    std::vector<drifted_cost> found;
    const auto compare = [&](const auto& before, const auto& now) {
        detail::add_drifted(
            found, p, now,
            [&](const auto& key) {
                const auto at = std::find_if(before.begin(), before.end(), [&](const auto& e) { return e.of == key; });
                return at == before.end() ? std::nullopt : std::optional{at->estimate};
            },
            confidence, options);
    };
    compare(planned.operations(confidence), measured.operations(confidence));
    compare(planned.messages(confidence), measured.messages(confidence));
    return found;
}

} // namespace optpipe
#endif
