#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace optpipe::cp {

/// A unit in which quantities of a problem are counted as integers. The numbers are exact if a decimal unit divides all
/// quantities. Quantities without a common decimal unit are rounded to a fine unit, each by at most 1/2 unit.
class grid {
public:
    explicit grid(const std::vector<double>& values, double largest_sum) {
        double power = 1.0;
        constexpr double ten = 10.0;
        constexpr int most_digits = 7; // number of decimal digits of measured times
        for (int digits = 0; digits <= most_digits; ++digits, power *= ten)
            if (fits(values, power, largest_sum)) return;
        constexpr int bits = 40; // bits of the largest sum, which fits in 55 bits even with rounding errors
        unit_ = largest_sum > 0.0 ? std::ldexp(largest_sum, -bits) : 1.0;
    }

    [[nodiscard]] double unit() const { return unit_; }
    [[nodiscard]] bool is_exact() const { return exact_; }
    [[nodiscard]] ticks nearest(double value) const { return static_cast<ticks>(std::llround(value / unit_)); }
    /// Rounds down, after adding a tolerance. The result is clamped to ±10¹⁸, which no sum reaches.
    [[nodiscard]] ticks below(double value) const {
        constexpr double rounding = 1e-6;
        constexpr double most = 1e18; // larger than all sums, which have 55 bits
        return static_cast<ticks>(std::floor(std::clamp(value / unit_ + rounding, -most, most)));
    }
    /// Rounds up, after subtracting a tolerance.
    [[nodiscard]] ticks above(double value) const { return -below(-value); }
    [[nodiscard]] double value(ticks count) const { return unit_ * static_cast<double>(count); }
    /// Makes the grid `parts` times as fine.
    void refine(std::int64_t parts) { unit_ /= static_cast<double>(parts); }

private:
    bool fits(const std::vector<double>& values, double power, double largest_sum) {
        constexpr double most = 1e13; // the largest number of ticks, which a double represents exactly
        constexpr double rounding = 1e-9;
        if (largest_sum * power > most) return false;
        std::int64_t common = 0;
        bool are_zero = true;
        for (const double v : values) {
            const double scaled = v * power;
            const double full = std::round(scaled);
            if (std::abs(scaled - full) > rounding * std::max(1.0, scaled)) return false;
            common = std::gcd(common, static_cast<std::int64_t>(full));
            are_zero = are_zero && v == 0.0;
        }
        if (common == 0 && !are_zero) return false; // the quantities aren't zero, but too small for the unit
        unit_ = static_cast<double>(std::max<std::int64_t>(common, 1)) / power;
        exact_ = true;
        return true;
    }

    double unit_ = 1.0;
    bool exact_ = false;
};

namespace detail {

/// The microbatches of one sequence from each group of sequences with equal costs.
[[nodiscard]] inline std::vector<microbatch> microbatches_with_own_costs(const problem& p) {
    std::vector<microbatch> result;
    for (const auto& equal : sequences_by_cost(p))
        result.insert(result.end(), equal.slices.begin(), equal.slices.end());
    return result;
}
inline void add_hops(const problem& p, std::vector<double>& times) {
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            if (a != b) times.push_back(p.p2p(a, b).value());
}
inline void add_delays(const problem& p, microbatch m, std::vector<double>& times) {
    if (p.is_simple()) return add_hops(p, times);
    for (const stage s : p.graph.all_stages()) {
        p.graph.for_each_edge_out_of(s, [&](const edge& e) {
            times.insert(times.end(), {p.message_time(e, m).value(), p.gradient_message_time(e, m).value()});
        });
        p.groups.for_each_member(s, [&](stage, duration delay) { times.push_back(delay.value()); });
    }
}
inline void add_times(const problem& p, stage s, microbatch m, std::vector<double>& times) {
    const auto c = p.cost(s, m);
    const auto& f = p.microbatches.factors(s, m);
    times.insert(times.end(), {c.forward.value(), c.backward_input.value(), c.backward_weight.value()});
    for (const auto& o : p.storage[s]) {
        times.insert(times.end(), {f.forward * o.recompute.value(), f.forward * o.backward_extra.value()});
        if (o.transfer)
            times.insert(times.end(), {f.memory * o.transfer->offload.value(), f.memory * o.transfer->reload.value()});
    }
}
inline void add_sizes(const problem& p, stage s, microbatch m, std::vector<double>& sizes) {
    const auto c = p.cost(s, m);
    const auto scaled = [&](memory_size size) { return p.microbatches.factors(s, m).memory * size.value(); };
    sizes.insert(sizes.end(), {c.activation.value(), c.weight_stash.value()});
    if (p.microbatches.has_slices()) sizes.push_back(c.kv.value());
    p.graph.for_each_edge_out_of(s, [&](const edge& e) { sizes.push_back(scaled(e.held)); });
    for (const auto& o : p.storage[s])
        sizes.insert(sizes.end(), {scaled(o.held), scaled(o.transfer_size)});
}

} // namespace detail

/// The unit of time of a problem. For `span`, an optimal time is a mean of differences along a cycle that visits each
/// rank at most once. If all durations are multiples of u, optimal times are multiples of u/k with k ≤ number of ranks.
/// `time_grid` divides u by the least common multiple of all possible k, if the multiple is small.
[[nodiscard]] inline grid time_grid(const problem& p) {
    std::vector<double> times;
    for (const microbatch m : detail::microbatches_with_own_costs(p)) {
        for (const stage s : p.graph.all_stages())
            detail::add_times(p, s, m, times);
        detail::add_delays(p, m, times);
    }
    grid result{times, p.serial_time().value()};
    if (p.objective != objective_kind::span || !result.is_exact()) return result;
    std::int64_t parts = 1;
    // With more parts, sums of durations would no longer be exact integers in a double.
    constexpr std::int64_t most_parts = 1'000'000;
    constexpr double most_ticks = 1e15;
    for (std::size_t k = 2; k <= p.graph.ranks() && parts < most_parts; ++k)
        parts = std::lcm(parts, static_cast<std::int64_t>(k));
    if (p.serial_time().value() / result.unit() * static_cast<double>(parts) < most_ticks) result.refine(parts);
    return result;
}

[[nodiscard]] inline grid memory_grid(const problem& p) {
    std::vector<double> sizes;
    for (const microbatch m : detail::microbatches_with_own_costs(p))
        for (const stage s : p.graph.all_stages())
            detail::add_sizes(p, s, m, sizes);
    double total = 0.0;
    for (const auto of_rank : all_memory(p))
        total += of_rank.value();
    return grid{sizes, total};
}

} // namespace optpipe::cp
