#pragma once

#include "optpipe/planner/cache/canonical.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe {
namespace detail {

/// The relative rounding error of a division by a unit.
inline constexpr double unit_rounding = 1e-12;

/// Whether every number of `a` is at least the corresponding one of `b`.
inline bool at_least(const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i] < (1.0 - unit_rounding) * b[i]) return false;
    return true;
}

/// The largest factor by which all of `b` can be multiplied without becoming more than `a`; at most 1.
inline double common_factor(const std::vector<double>& a, const std::vector<double>& b) {
    double factor = 1.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (b[i] > 0.0) factor = std::min(factor, a[i] / b[i]);
    return factor;
}

} // namespace detail

/// Whether the two differ in numbers only.
[[nodiscard]] inline bool same_shape(const canonical_problem& a, const canonical_problem& b) {
    return a.shape == b.shape && a.stages == b.stages && a.times.size() == b.times.size() &&
           a.stashes.size() == b.stashes.size() && a.limits.size() == b.limits.size();
}

/// The bound for `asked` that a bound for `known` implies, both in canonical units; 0 if there is none.
///
/// If `asked` has no fewer microbatches, no smaller stashes, no larger limits, and times of at least `f` times those of
/// `known`, then each of its schedules, with the microbatches beyond those of `known` left out and times scaled by 1/f,
/// is one of `known` with objective / f: so no schedule of `asked` is below f × bound. The bound is shaved by what
/// rounding may have done to the numbers.
[[nodiscard]] inline double carried_bound(const canonical_problem& known, double bound,
                                          const canonical_problem& asked) {
    if (!same_shape(known, asked) || asked.microbatches < known.microbatches) return 0.0;
    const bool tighter = detail::at_least(asked.stashes, known.stashes) &&
                         detail::at_least(known.limits, asked.limits) &&
                         detail::at_least(known.host_limits, asked.host_limits) &&
                         detail::at_least({known.memory_scale}, {asked.memory_scale});
    if (!tighter) return 0.0;
    return (1.0 - 2.0 * detail::unit_rounding) * detail::common_factor(asked.times, known.times) * bound;
}

/// Whether the two are the same problem, up to rounding.
[[nodiscard]] inline bool is_same(const canonical_problem& a, const canonical_problem& b) {
    const auto equal = [](const std::vector<double>& x, const std::vector<double>& y) {
        return detail::at_least(x, y) && detail::at_least(y, x);
    };
    return same_shape(a, b) && a.microbatches == b.microbatches && equal(a.times, b.times) &&
           equal(a.stashes, b.stashes) && equal(a.limits, b.limits) && equal(a.host_limits, b.host_limits);
}

} // namespace optpipe
