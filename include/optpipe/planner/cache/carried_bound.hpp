#pragma once

#include "optpipe/planner/cache/canonical.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace optpipe {
namespace detail {

/// Relative rounding error of a division by a unit.
inline constexpr double unit_rounding = 1e-12;

/// Whether every number of `a` is at least the corresponding number of `b`.
inline bool at_least(std::span<const double> a, std::span<const double> b) {
    for (std::size_t i = 0; i < a.size(); ++i)
        if (a[i] < (1.0 - unit_rounding) * b[i]) return false;
    return true;
}
inline bool at_least(double a, double b) { return at_least(std::span{&a, 1}, std::span{&b, 1}); }

/// The largest f ≤ 1 with f · b[i] ≤ a[i] for all i.
inline double common_factor(std::span<const double> a, std::span<const double> b) {
    double factor = 1.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (b[i] > 0.0) factor = std::min(factor, a[i] / b[i]);
    return factor;
}

/// With its times multiplied by the returned factor, `known` can replace `asked` in any schedule. The factor is the
/// largest possible, but at most 1. The factor is 0 if `known` ever holds more memory than `asked`, or has an operation
/// that `asked` lacks.
inline double replacing_factor(const canonical_option& known, const canonical_option& asked) {
    // Compares the memory that stays on the device, and the memory that is transferred. An option's `held` is the
    // memory that stays plus the memory that is transferred. Activations that are recomputed are compared as part of
    // `stashes`.
    const bool holds_no_more =
        at_least(asked.left_on_device(), known.left_on_device()) && at_least(asked.transfer_size, known.transfer_size);
    if (!holds_no_more || (known.offloads() && !asked.offloads())) return 0.0;
    const auto transfer_factor = known.offloads() ? common_factor(std::array{asked.offload, asked.reload},
                                                                  std::array{known.offload, known.reload})
                                                  : 1.0;
    return std::min(transfer_factor, common_factor(std::array{asked.recompute, asked.backward_extra},
                                                   std::array{known.recompute, known.backward_extra}));
}

/// The storage options of `asked` are replaced by options of `known`. For each option of `asked`, the option with the
/// best `replacing_factor` is taken. Returns the least of the taken factors.
inline double replacing_factor(const std::vector<canonical_options>& known,
                               const std::vector<canonical_options>& asked) {
    double factor = 1.0;
    for (std::size_t s = 0; s < asked.size(); ++s)
        for (const auto& option : asked[s]) {
            double best = 0.0;
            for (const auto& other : known[s])
                best = std::max(best, replacing_factor(other, option));
            factor = std::min(factor, best);
        }
    return factor;
}

} // namespace detail

namespace detail {

inline std::span<const double> factors_of_times(const canonical_problem& of) {
    return std::span{of.factors}.first(of.factors.size() / factor_tables * factor_tables_of_times);
}
inline std::span<const double> factors_of_memory(const canonical_problem& of) {
    return std::span{of.factors}.last(of.factors.size() / factor_tables);
}
/// Whether the microbatches of two forms differ only in numbers. Microbatches with equal indices are compared.
inline bool are_draws_alike(const canonical_problem& a, const canonical_problem& b) {
    return a.slices == b.slices && a.factors.size() == b.factors.size();
}

} // namespace detail

/// Whether two forms differ only in numbers, storage options and microbatches (`slices` and `factors`).
[[nodiscard]] inline bool same_shape(const canonical_problem& a, const canonical_problem& b) {
    return a.shape == b.shape && a.stages == b.stages && a.times.size() == b.times.size() &&
           a.stashes.size() == b.stashes.size() && a.limits.size() == b.limits.size() &&
           a.storage.size() == b.storage.size() && a.slices.empty() == b.slices.empty() &&
           a.factor_rows == b.factor_rows;
}

/// Whether two forms describe the same problem, up to rounding.
[[nodiscard]] inline bool is_same(const canonical_problem& a, const canonical_problem& b) {
    const auto equal = [](std::span<const double> x, std::span<const double> y) {
        return detail::at_least(x, y) && detail::at_least(y, x);
    };
    const auto equal_options = [&](const canonical_options& x, const canonical_options& y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                          [&](const canonical_option& o, const canonical_option& other) {
                              return equal(o.numbers(), other.numbers());
                          });
    };
    return same_shape(a, b) && a.microbatches == b.microbatches && detail::are_draws_alike(a, b) &&
           equal(a.factors, b.factors) && equal(a.times, b.times) && equal(a.stashes, b.stashes) &&
           equal(a.limits, b.limits) && equal(a.host_limits, b.host_limits) &&
           std::equal(a.storage.begin(), a.storage.end(), b.storage.begin(), b.storage.end(), equal_options);
}

/// The bound for `asked` that a bound for `known` implies, or 0. Bounds are in canonical units.
///
/// Suppose that `asked` has at least as many microbatches as `known`, no smaller stashes and no larger limits. Let the
/// times of `asked` be at least f times those of `known`. A schedule of `asked` becomes a schedule of `known`:
/// additional microbatches are left out, and times are divided by f. The division divides the objective by f: no
/// schedule of `asked` is below f × bound. The bound is lowered by the possible rounding error of the numbers.
///
/// For each storage option of `asked`, `known` must have an option that costs no more. The option of `known` replaces
/// the option of `asked` wherever a schedule uses it. A stash takes the memory `held` from the forward to the end of
/// the offload. Between offload and reload, the stash takes only the part left on the device, and `held` again after
/// that. From the start of a recomputation, a stash takes the size of the activation. A stash is never larger with the
/// option of `known` than with the option of `asked`, on device or host. Each operation of `asked` becomes the same
/// operation of `known`, with an equal start and no later end. Operations that the option of `known` lacks are left
/// out. Dependent operations don't start too early, lanes run one operation at a time, and memory is freed in time.
/// Further options of `known` don't matter: more options can only shorten schedules of `known`. If `asked` has an
/// option that no option of `known` can replace, no bound follows.
///
/// If microbatches differ, both problems must have the same number of microbatches. The k-th microbatch of `asked`
/// stands for the k-th microbatch of `known`. The factors of `asked` on memory must be at least those of `known`. The
/// bound is multiplied by the smallest ratio of time factors (`asked` to `known`), at most 1. If microbatches differ
/// and there are pairs, only a bound for the same problem is used. A pair's factor depends on the durations of its
/// parts.
///
/// If a microbatch is left out, pairs lose one of their two parts. The remaining part of a pair runs alone, and ends no
/// later.
[[nodiscard]] inline double carried_bound(const canonical_problem& known, double bound,
                                          const canonical_problem& asked) {
    if (!same_shape(known, asked) || asked.microbatches < known.microbatches) return 0.0;
    if (!detail::are_draws_alike(known, asked)) return 0.0;
    if (known.has_pairs() && !known.factors.empty() && !is_same(known, asked)) return 0.0;
    const bool tighter = detail::at_least(asked.stashes, known.stashes) &&
                         detail::at_least(known.limits, asked.limits) &&
                         detail::at_least(known.host_limits, asked.host_limits) &&
                         detail::at_least(known.memory_scale, asked.memory_scale) &&
                         detail::at_least(detail::factors_of_memory(asked), detail::factors_of_memory(known));
    if (!tighter) return 0.0;
    const double factor = std::min(detail::common_factor(asked.times, known.times),
                                   detail::replacing_factor(known.storage, asked.storage)) *
                          detail::common_factor(detail::factors_of_times(asked), detail::factors_of_times(known));
    return (1.0 - 2.0 * detail::unit_rounding) * factor * bound;
}

} // namespace optpipe
