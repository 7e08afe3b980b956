#pragma once

#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/cuts/sparse_sum.hpp"
#include "optpipe/milp/search/cuts/variable_bounds.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/tree/proof_row.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

struct row_multiplier {
    std::uint32_t row;
    double multiplier;
};

/// Limits of `mixed_integer_rounding` for one sum of rows. Not tuned.
struct rounding_parameters {
    /// Least distance from the point to a cut. Cuts nearer to the point are dropped.
    double least_efficacy = 1e-3;
    /// Coefficients below this value count as 0 after rounding.
    double zero = 1e-10;
    /// Number of coefficients that are tried as divisors of the sum. The best divisor is also tried divided by each
    /// number in `shares` (Marchand and Wolsey).
    std::size_t most_divisors = 16;
    std::array<double, 3> shares{2.0, 4.0, 8.0};
    /// Number of integer variables also measured from their farther bound.
    std::size_t most_flips = 30;
    /// After division, the right-hand side must be at least this far from the nearest integers. A right-hand side near
    /// the integer below makes the cut weak. A right-hand side near the integer above makes coefficients large. A small
    /// right-hand side, such as demand / capacity, keeps coefficients small. A small right-hand side needs only the
    /// distance `least_rest` from the integer above. `least_rest` is ten times the integrality tolerance. On 31
    /// networks, the rule for small right-hand sides raises the number solved within 6 s from 11 to 30.
    double least_fraction = 0.01;
    double least_rest = 1e-5;
};

/// The bound from which a non-integer column is measured. `nearest` is the bound that is nearer to the column's value
/// at the point. `relaxing` is the bound with which the column drops out of the rounded sum.
enum class bound_choice : unsigned char { nearest, relaxing };

/// Mixed-integer rounding of a sum of rows (Nemhauser and Wolsey, 1990; Marchand and Wolsey, 2001). Columns and slacks
/// are measured from their nearer bound. A bound may depend on an integer variable. `bound_choice` says from which
/// bound non-integer columns are measured. The sum is divided by one of its coefficients and rounded. With the
/// multipliers of a row of the simplex tableau, the result is Gomory's mixed-integer cut. A network node's row and its
/// arcs' capacity rows give a flow cover cut.
class mixed_integer_rounding {
public:
    /// `lower` and `upper` are the bounds at the root.
    mixed_integer_rounding(const problem& p, const extra_rows& extra, std::span<const double> lower,
                           std::span<const double> upper, const variable_bounds& ends)
        : problem_{p}, extra_{extra}, lower_{lower}, upper_{upper}, ends_{ends}, sums_{p.columns()},
          integers_{p.columns()}, rounded_{p.columns()} {}

    /// The most effective violated cut from the weighted sum of rows or its negative, if any.
    std::optional<cut> separate(std::span<const row_multiplier> rows, std::span<const double> point,
                                bound_choice choice = bound_choice::nearest) {
        choice_ = choice;
        sums_.clear();
        for (const auto& [i, multiplier] : rows)
            for (const auto& e : entries(i))
                sums_.add(e.column, multiplier * e.coefficient);
        effort_ += sums_.touched().size();
        std::optional<cut> best;
        for (const double sign : {1.0, -1.0}) {
            if (!measure(rows, point, sign)) continue;
            // The sum with its error is a valid row, which any rounding keeps valid.
            right_ += if_noticed(error_of_sum(rows, point), sums_);
            const auto divisor = best_divisor();
            if (!divisor) continue;
            auto found = round(*divisor, point);
            if (!found) continue;
            found->measure(point);
            if (found->efficacy > with_.least_efficacy && (!best || found->efficacy > best->efficacy))
                best = std::move(found);
        }
        return best;
    }

    /// The effort of all calls, in visits of a term.
    [[nodiscard]] std::size_t effort() const { return effort_; }

private:
    static constexpr rounding_parameters with_{};

    /// The nonnegative distance of a column or a row's activity from a bound.
    struct part {
        std::uint32_t index = 0;
        bool is_row = false;
        bool integral = false;
        bool from_upper = false;
        const variable_bound* end = nullptr; ///< null if the bound is a number
        double coefficient = 0.0;            ///< coefficient of the distance
        double value = 0.0;                  ///< value of the distance at the point
        double width = infinity;
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

    /// Writes Σ multiplier · (row - activity of the row) = 0 in distances, as parts_ = right_. Returns false if a bound
    /// is infinite.
    bool measure(std::span<const row_multiplier> rows, std::span<const double> point, double sign) {
        parts_.clear();
        integers_.clear();
        right_ = right_size_ = 0.0;
        has_capacity_ = false;
        for (const auto& r : rows)
            if (!measure_row(r.row, sign * r.multiplier, point)) return false;
        for (const auto j : sums_.touched()) {
            const double coefficient = sign * sums_[j];
            if (sums_.is_noise(j)) {
                if (!leave_out(j, coefficient)) return false;
            } else if (problem_.is_integer(j)) {
                integers_.add(j, coefficient);
            } else if (!measure_column(j, coefficient, point)) {
                return false;
            }
        }
        for (const auto j : integers_.touched()) {
            const bool stays = !integers_.is_noise(j);
            if (stays ? !add({.index = j, .integral = true}, integers_[j], point[j], lower_[j], upper_[j])
                      : !leave_out(j, integers_[j]))
                return false;
        }
        return true;
    }
    /// The error of `right_`: rounding errors of the terms, and the error of the rows.
    [[nodiscard]] double error_of_sum(std::span<const row_multiplier> rows, std::span<const double> point) const {
        double error = noise_of_sum(right_size_ + size_of(sums_, point));
        for (const auto& [i, multiplier] : rows)
            if (i < problem_.rows()) error += std::abs(multiplier) * problem_.row_noise[i];
        return error;
    }
    /// The error of a row with these terms, or 0 if the error is far below the row's tolerance.
    static double if_noticed(double error, const sparse_sum& terms) {
        double largest = 0.0;
        for (const auto j : terms.touched())
            largest = std::max(largest, std::abs(terms[j]));
        return error > with_.zero * largest ? error : 0.0;
    }
    /// The sum of the largest magnitudes of all terms. A column without bounds has the magnitude that it has at the
    /// point.
    [[nodiscard]] double size_of(const sparse_sum& terms, std::span<const double> point) const {
        double size = 0.0;
        for (const auto j : terms.touched()) {
            double largest = std::abs(point[j]);
            for (const double bound : {lower_[j], upper_[j]})
                if (std::isfinite(bound)) largest = std::max(largest, std::abs(bound));
            size += terms.size_of(j) * std::min(largest, problem_.tolerances.huge);
        }
        return size;
    }
    bool measure_row(std::uint32_t i, double multiplier, std::span<const double> point) {
        const double low = row_lower(i), up = row_upper(i);
        if (low == up) {
            move_right(multiplier * low);
            return true;
        }
        double activity = 0.0;
        bool integral = is_integral(low) && is_integral(up);
        for (const auto& e : entries(i)) {
            activity += e.coefficient * point[e.column];
            integral = integral && problem_.is_integral(e.column) && is_integral(e.coefficient);
        }
        return add({.index = i, .is_row = true, .integral = integral}, -multiplier, activity, low, up);
    }
    /// Measures a column from a bound, which may depend on an integer variable. Returns false if the chosen bound is
    /// infinite.
    bool measure_column(std::uint32_t j, double coefficient, std::span<const double> point) {
        const auto *low = ends_.greatest_lower(j, point), *up = ends_.least_upper(j, point);
        const double value = point[j], level = problem_.tolerances.feasibility;
        if (low && low->at(point) < lower_[j] - level) low = nullptr;
        if (up && up->at(point) > upper_[j] + level) up = nullptr;
        const double below = value - (low ? low->at(point) : lower_[j]);
        const double above = (up ? up->at(point) : upper_[j]) - value;
        const bool from_upper = is_from_upper(coefficient, below, above);
        const auto* end = from_upper ? up : low;
        const double bound = end ? end->constant : from_upper ? upper_[j] : lower_[j];
        if (!std::isfinite(bound)) return false;
        move_right(-coefficient * bound);
        if (end) integers_.add(end->integer, coefficient * end->coefficient);
        has_capacity_ = has_capacity_ || end;
        const bool integral =
            problem_.is_integral(j) && (!end || (is_integral(end->constant) && is_integral(end->coefficient)));
        parts_.push_back({.index = j,
                          .integral = integral,
                          .from_upper = from_upper,
                          .end = end,
                          .coefficient = from_upper ? -coefficient : coefficient,
                          .value = std::max(0.0, from_upper ? above : below),
                          .width = end ? infinity : upper_[j] - lower_[j]});
        return true;
    }
    /// Whether to measure the column from its upper bound. Ties go to the bound that removes the column or replaces it
    /// by an integer variable.
    [[nodiscard]] bool is_from_upper(double coefficient, double below, double above) const {
        const bool relaxes = coefficient < 0.0;
        const bool relaxing = choice_ == bound_choice::relaxing && std::isfinite(relaxes ? above : below);
        return relaxing || std::abs(below - above) <= problem_.tolerances.feasibility ? relaxes : above < below;
    }
    void move_right(double by) {
        right_ += by;
        right_size_ += std::abs(by);
    }
    /// Replaces the nearly cancelling terms of column `j` by their sum's least value. Returns false if the sum has no
    /// least value.
    bool leave_out(std::size_t j, double coefficient) {
        if (coefficient == 0.0) return true;
        const double bound = coefficient > 0.0 ? lower_[j] : upper_[j];
        move_right(-coefficient * bound);
        return std::isfinite(bound);
    }
    static bool is_integral(double value) { return !std::isfinite(value) || value == std::round(value); }
    bool add(part p, double coefficient, double value, double low, double up) {
        if (low == -infinity && up == infinity) return false;
        p.from_upper = low == -infinity || up - value < value - low;
        const double bound = p.from_upper ? up : low;
        move_right(-coefficient * bound);
        p.coefficient = p.from_upper ? -coefficient : coefficient;
        p.value = std::max(0.0, p.from_upper ? up - value : value - low);
        p.width = up - low;
        parts_.push_back(p);
        return true;
    }
    [[nodiscard]] bool is_between(const part& p) const {
        const double near = problem_.tolerances.integrality;
        return p.integral && p.value > near && p.value < p.width - near;
    }

    /// The divisor with the most effective rounding. Integer variables are flipped (measured from their farther bound)
    /// if that makes rounding more effective.
    std::optional<double> best_divisor() {
        double best = 0.0, quality = 0.0;
        const auto consider = [&](double divisor) {
            const double q = quality_of(divisor);
            if (q <= quality) return false;
            best = divisor;
            quality = q;
            return true;
        };
        for (const double d : divisors())
            consider(d);
        if (quality <= 0.0) return std::nullopt;
        const double first = best;
        for (const double share : with_.shares)
            consider(first / share);
        for (const auto k : flippable()) {
            flip(parts_[k]);
            if (!consider(best)) flip(parts_[k]);
        }
        return best;
    }
    /// The divisors to try are 1 and the coefficients of integral terms with values strictly between their bounds.
    [[nodiscard]] std::vector<double> divisors() const {
        std::vector<double> result{1.0};
        for (const auto& p : parts_) {
            const double size = std::abs(p.coefficient);
            if (!is_between(p) || size < problem_.tolerances.feasibility) continue;
            const auto same = [&](double d) { return std::abs(d - size) < with_.zero * size; };
            if (std::none_of(result.begin(), result.end(), same)) result.push_back(size);
            if (result.size() > with_.most_divisors) break;
        }
        return result;
    }
    /// The parts that may be flipped, those nearest to the middle first.
    [[nodiscard]] std::vector<std::size_t> flippable() const {
        std::vector<std::pair<double, std::size_t>> found;
        for (std::size_t k = 0; k < parts_.size(); ++k)
            if (const auto& p = parts_[k]; is_between(p) && std::isfinite(p.width))
                found.emplace_back(std::abs(p.value - 0.5 * p.width), k);
        std::sort(found.begin(), found.end());
        found.resize(std::min(found.size(), with_.most_flips));
        std::vector<std::size_t> result;
        for (const auto& [unused, k] : found)
            result.push_back(k);
        return result;
    }
    void flip(part& p) {
        right_ -= p.coefficient * p.width;
        p.coefficient = -p.coefficient;
        p.value = p.width - p.value;
        p.from_upper = !p.from_upper;
    }
    /// The efficacy of a rounding, approximated by distances in the space of the parts.
    double quality_of(double divisor) {
        const double right = right_ / divisor, fraction = right - std::floor(right);
        if (!is_usable(divisor)) return 0.0;
        effort_ += parts_.size();
        double violation = -std::floor(right), square = 0.0;
        for (const auto& p : parts_) {
            const double weight = rounded(p.coefficient / divisor, p.integral, fraction);
            violation += weight * p.value;
            square += weight * weight;
        }
        return square > 0.0 ? violation / std::sqrt(square) : 0.0;
    }
    [[nodiscard]] bool is_usable(double divisor) const {
        const double right = right_ / divisor, fraction = right - std::floor(right), rest = 1.0 - fraction;
        if (fraction < with_.least_fraction) return false;
        return rest >= with_.least_fraction ||
               (rest >= with_.least_fraction * std::abs(right) && is_demand(divisor, rest));
    }
    /// Whether the remainder of the right-hand side can be a demand. A demand is smaller than the capacities, but
    /// larger than the tolerance of rows.
    [[nodiscard]] bool is_demand(double divisor, double rest) const {
        return has_capacity_ && rest >= with_.least_rest && rest * divisor > problem_.tolerances.slack(right_size_);
    }

    /// Rounds parts_ <= right_, and converts the result to columns. The rounding is valid because the parts are
    /// nonnegative.
    std::optional<cut> round(double divisor, std::span<const double> point) {
        const double right = right_ / divisor, fraction = right - std::floor(right);
        rounded_.clear();
        double limit = std::floor(right);
        for (const auto& p : parts_) {
            const double weight = rounded(p.coefficient / divisor, p.integral, fraction);
            if (weight != 0.0) limit += add_back(p, p.from_upper ? -weight : weight);
        }
        if (rounded_.touched().size() > longest()) return std::nullopt;
        limit += if_noticed(noise_of_sum(std::abs(limit) + size_of(rounded_, point)), rounded_);
        return normalized(rounded_, limit, lower_, upper_);
    }
    /// Adds a part to the cut, and returns the change of the limit.
    double add_back(const part& p, double weight) {
        if (p.is_row) {
            for (const auto& e : entries(p.index))
                rounded_.add(e.column, weight * e.coefficient);
            return weight * (p.from_upper ? row_upper(p.index) : row_lower(p.index));
        }
        rounded_.add(p.index, weight);
        if (!p.end) return weight * (p.from_upper ? upper_[p.index] : lower_[p.index]);
        rounded_.add(p.end->integer, -weight * p.end->coefficient);
        return weight * p.end->constant;
    }
    [[nodiscard]] std::size_t longest() const {
        constexpr std::size_t least = 100, share = 5;
        return least + problem_.columns() / share;
    }
    static double rounded(double coefficient, bool integral, double fraction) {
        if (!integral) return coefficient < 0.0 ? coefficient / (1.0 - fraction) : 0.0;
        const double floor = std::floor(coefficient);
        return floor + std::max(0.0, coefficient - floor - fraction) / (1.0 - fraction);
    }

    const problem& problem_;
    const extra_rows& extra_;
    std::span<const double> lower_, upper_;
    const variable_bounds& ends_;
    sparse_sum sums_, integers_, rounded_;
    std::vector<part> parts_;
    double right_ = 0.0;
    double right_size_ = 0.0;   ///< sum of the magnitudes of the terms of `right_`
    bool has_capacity_ = false; ///< whether some part is measured from a variable bound
    bound_choice choice_ = bound_choice::nearest;
    std::size_t effort_ = 0;
};

} // namespace optpipe::milp::search
