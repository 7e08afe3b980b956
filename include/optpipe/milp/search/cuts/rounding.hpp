#pragma once

#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/proof.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Mixed-integer rounding (Nemhauser and Wolsey, 1990; the procedure of Marchand and Wolsey, 2001) of a sum of rows of
/// the relaxation: columns and slacks are measured from their nearer bound, the sum is divided by some coefficient and
/// rounded. With the multipliers of a row of the simplex tableau that is Gomory's mixed-integer cut.
class mixed_integer_rounding {
public:
    /// Bounds are those of the root.
    mixed_integer_rounding(const problem& p, const extra_rows& extra, std::span<const double> lower,
                           std::span<const double> upper)
        : problem_{p}, extra_{extra}, lower_{lower}, upper_{upper}, sums_(p.columns(), 0.0) {}

    /// The most effective cut of both directions, if any cuts off the point.
    std::optional<cut> separate(std::span<const double> multipliers, std::span<const double> point) {
        std::optional<cut> best;
        for (const double sign : {1.0, -1.0}) {
            if (!collect(multipliers, point, sign)) continue;
            for (const double divisor : divisors()) {
                auto found = round(divisor);
                if (!found) continue;
                found->measure(point);
                if (found->efficacy > least_efficacy && (!best || found->efficacy > best->efficacy))
                    best = std::move(found);
            }
        }
        return best;
    }

private:
    static constexpr double least_efficacy = 1e-3;
    static constexpr double zero = 1e-10;
    static constexpr std::size_t most_divisors = 8;
    static constexpr double least_fraction = 0.01;

    /// A column, or the activity of a row, as a distance from one of its bounds: at least 0.
    struct part {
        std::uint32_t index;
        bool is_row;
        bool whole;
        bool from_upper;
        double coefficient; ///< of the distance
        double value;       ///< of the distance, at the point
    };

    [[nodiscard]] std::span<const entry> entries(std::size_t i) const {
        return i < problem_.rows() ? problem_.row_entries(i)
                                   : std::span<const entry>{extra_[i - problem_.rows()].entries};
    }
    [[nodiscard]] double row_lower(std::size_t i) const {
        return i < problem_.rows() ? problem_.row_lower[i] : extra_[i - problem_.rows()].lower;
    }
    [[nodiscard]] double row_upper(std::size_t i) const {
        return i < problem_.rows() ? problem_.row_upper[i] : extra_[i - problem_.rows()].upper;
    }

    /// sum of multiplier · (row - its activity) = 0 in terms of distances: parts_ = right_. False without finite
    /// bounds.
    bool collect(std::span<const double> multipliers, std::span<const double> point, double sign) {
        std::fill(sums_.begin(), sums_.end(), 0.0);
        parts_.clear();
        right_ = 0.0;
        for (std::size_t i = 0; i < multipliers.size(); ++i) {
            if (multipliers[i] == 0.0) continue;
            double activity = 0.0;
            bool whole = true;
            for (const auto& e : entries(i)) {
                sums_[e.column] += sign * multipliers[i] * e.coefficient;
                activity += e.coefficient * point[e.column];
                whole = whole && problem_.is_whole(e.column) && e.coefficient == std::round(e.coefficient);
            }
            const double low = row_lower(i), up = row_upper(i);
            if (low == up) {
                right_ += sign * multipliers[i] * low;
                continue;
            }
            whole = whole && is_whole(low) && is_whole(up);
            if (!add({static_cast<std::uint32_t>(i), true, whole, false, 0.0, 0.0}, -sign * multipliers[i], activity,
                     low, up))
                return false;
        }
        for (std::size_t j = 0; j < sums_.size(); ++j)
            if (std::abs(sums_[j]) <= zero)
                leave_out(j);
            else if (!add({static_cast<std::uint32_t>(j), false, problem_.is_whole(j), false, 0.0, 0.0}, sums_[j],
                          point[j], lower_[j], upper_[j]))
                return false;
        return true;
    }
    /// What is left of terms that cancel each other, at its least.
    void leave_out(std::size_t j) {
        const double bound = sums_[j] > 0.0 ? lower_[j] : upper_[j];
        if (std::isfinite(bound)) right_ -= sums_[j] * bound;
    }
    static bool is_whole(double value) { return !std::isfinite(value) || value == std::round(value); }
    bool add(part p, double coefficient, double value, double low, double up) {
        if (low == -infinity && up == infinity) return false;
        p.from_upper = low == -infinity || up - value < value - low;
        const double bound = p.from_upper ? up : low;
        right_ -= coefficient * bound;
        p.coefficient = p.from_upper ? -coefficient : coefficient;
        p.value = std::max(0.0, p.from_upper ? up - value : value - low);
        parts_.push_back(p);
        return true;
    }

    /// 1, and coefficients of whole parts that are between their bounds.
    [[nodiscard]] std::vector<double> divisors() const {
        std::vector<double> result{1.0};
        for (const auto& p : parts_) {
            const double size = std::abs(p.coefficient);
            if (!p.whole || p.value <= problem_.tolerances.integrality || size < problem_.tolerances.feasibility)
                continue;
            const auto same = [&](double d) { return std::abs(d - size) < zero * size; };
            if (std::none_of(result.begin(), result.end(), same)) result.push_back(size);
            if (result.size() > most_divisors) break;
        }
        return result;
    }

    /// The parts are at least 0, so parts_ <= right_ may be rounded; then back to columns.
    std::optional<cut> round(double divisor) {
        const double right = right_ / divisor;
        const double fraction = right - std::floor(right);
        if (fraction < least_fraction || fraction > 1.0 - least_fraction) return std::nullopt;
        rounded_.assign(problem_.columns(), 0.0);
        double limit = std::floor(right);
        for (const auto& p : parts_) {
            const double weight = rounded(p.coefficient / divisor, p.whole, fraction);
            if (weight == 0.0) continue;
            const double back = p.from_upper ? -weight : weight;
            if (p.is_row) {
                limit += back * (p.from_upper ? row_upper(p.index) : row_lower(p.index));
                for (const auto& e : entries(p.index))
                    rounded_[e.column] += back * e.coefficient;
            } else {
                limit += back * (p.from_upper ? upper_[p.index] : lower_[p.index]);
                rounded_[p.index] += back;
            }
        }
        cut c;
        c.limit = limit;
        for (std::size_t j = 0; j < rounded_.size(); ++j)
            if (rounded_[j] != 0.0) c.entries.push_back({static_cast<std::uint32_t>(j), rounded_[j]});
        if (c.entries.size() > longest()) return std::nullopt;
        return tidied(std::move(c), lower_, upper_);
    }
    [[nodiscard]] std::size_t longest() const {
        constexpr std::size_t least = 100, share = 5;
        return least + problem_.columns() / share;
    }
    static double rounded(double coefficient, bool whole, double fraction) {
        if (!whole) return coefficient < 0.0 ? coefficient / (1.0 - fraction) : 0.0;
        const double floor = std::floor(coefficient);
        return floor + std::max(0.0, coefficient - floor - fraction) / (1.0 - fraction);
    }

    const problem& problem_;
    const extra_rows& extra_;
    std::span<const double> lower_, upper_;
    std::vector<double> sums_;
    std::vector<double> rounded_;
    std::vector<part> parts_;
    double right_ = 0.0;
};

} // namespace optpipe::milp::search
