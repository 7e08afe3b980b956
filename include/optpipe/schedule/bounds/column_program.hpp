#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A linear program min c·x, Ax = b, x ≥ 0, whose columns are added while it is solved: the restricted master problem
/// of column generation (Gilmore and Gomory 1961). It uses a dense primal simplex that starts from artificial
/// variables. The right-hand sides are perturbed, because almost all of them are 0.
///
/// Its multipliers are only proposals: callers evaluate them on their own, so rounding weakens a bound, but never makes
/// it invalid.
class column_program {
public:
    struct entry {
        std::size_t row;
        double value;
    };
    using column = std::vector<entry>;

    /// `artificial_cost` is the cost of one unit of violation of a row.
    column_program(std::vector<double> sides, double artificial_cost)
        : rows_{sides.size()}, artificial_cost_{artificial_cost}, sides_{std::move(sides)} {
        constexpr double perturbation = 1e-9;
        // A linear congruential generator (Knuth and Lewis), of which the upper 24 bits are used.
        constexpr std::uint32_t multiplier = 1664525U;
        constexpr std::uint32_t increment = 1013904223U;
        constexpr double range = 16777216.0;
        std::uint32_t random = 12345;
        for (double& b : sides_) {
            random = random * multiplier + increment;
            b += perturbation * (1.0 + static_cast<double>(random >> 8) / range);
        }
        inverse_.assign(rows_ * rows_, 0.0);
        basis_.resize(rows_);
        values_.resize(rows_);
        multipliers_.resize(rows_);
        for (std::size_t i = 0; i < rows_; ++i) {
            const double sign = sides_[i] < 0.0 ? -1.0 : 1.0;
            columns_.push_back({{i, sign}});
            costs_.push_back(artificial_cost_);
            basis_[i] = i;
            inverse_[i * rows_ + i] = sign;
            values_[i] = sign * sides_[i];
            multipliers_[i] = sign * artificial_cost_;
        }
        is_basic_.assign(rows_, true);
    }

    void add(double cost, column entries) {
        columns_.push_back(std::move(entries));
        costs_.push_back(cost);
        is_basic_.push_back(false);
    }
    /// Solves to the optimum over the current columns, in at most `most_pivots` pivots.
    void solve(std::size_t most_pivots) {
        for (std::size_t n = 0; n < most_pivots; ++n) {
            const auto entering = cheapest();
            if (entering == columns_.size() || !pivot(entering)) return;
        }
    }
    [[nodiscard]] const std::vector<double>& multipliers() const { return multipliers_; }
    [[nodiscard]] double objective() const {
        double total = 0.0;
        for (std::size_t i = 0; i < rows_; ++i)
            total += costs_[basis_[i]] * values_[i];
        return total;
    }
    /// The value of the k-th added column.
    [[nodiscard]] double value_of(std::size_t k) const {
        for (std::size_t i = 0; i < rows_; ++i)
            if (basis_[i] == rows_ + k) return values_[i];
        return 0.0;
    }
    [[nodiscard]] std::size_t columns() const { return columns_.size() - rows_; }
    [[nodiscard]] std::size_t pivots() const { return pivots_; }
    [[nodiscard]] std::size_t rows() const { return rows_; }

private:
    [[nodiscard]] double reduced_cost(std::size_t j) const {
        double cost = costs_[j];
        for (const auto& e : columns_[j])
            cost -= multipliers_[e.row] * e.value;
        return cost;
    }
    /// The column with the least reduced cost; the number of columns if none is negative. Artificial columns never
    /// return.
    [[nodiscard]] std::size_t cheapest() const {
        constexpr double optimality = 1e-9;
        std::size_t best = columns_.size();
        double least = -optimality;
        for (std::size_t j = rows_; j < columns_.size(); ++j) {
            if (is_basic_[j]) continue;
            if (const double cost = reduced_cost(j); cost < least) {
                least = cost;
                best = j;
            }
        }
        return best;
    }
    bool pivot(std::size_t entering) {
        direction_.assign(rows_, 0.0);
        for (const auto& e : columns_[entering])
            for (std::size_t i = 0; i < rows_; ++i)
                direction_[i] += inverse_[i * rows_ + e.row] * e.value;
        const auto leaving = ratio_test();
        if (leaving == rows_) return false;
        const double cost = reduced_cost(entering);
        is_basic_[basis_[leaving]] = false;
        is_basic_[entering] = true;
        basis_[leaving] = entering;
        double* row = &inverse_[leaving * rows_];
        const double scale = 1.0 / direction_[leaving];
        for (std::size_t k = 0; k < rows_; ++k)
            row[k] *= scale;
        values_[leaving] *= scale;
        for (std::size_t i = 0; i < rows_; ++i) {
            const double factor = direction_[i];
            if (i == leaving || factor == 0.0) continue;
            double* other = &inverse_[i * rows_];
            for (std::size_t k = 0; k < rows_; ++k)
                other[k] -= factor * row[k];
            values_[i] -= factor * values_[leaving];
        }
        for (std::size_t k = 0; k < rows_; ++k)
            multipliers_[k] += cost * row[k];
        // Updates accumulate rounding; recomputing the prices costs as much as a few updates. Not tuned.
        constexpr std::size_t refresh = 64;
        if (++pivots_ % refresh == 0) price_again();
        return true;
    }
    [[nodiscard]] std::size_t ratio_test() const {
        constexpr double smallest_pivot = 1e-9;
        std::size_t leaving = rows_;
        double least = 0.0;
        for (std::size_t i = 0; i < rows_; ++i) {
            if (direction_[i] <= smallest_pivot) continue;
            const double ratio = std::max(0.0, values_[i]) / direction_[i];
            constexpr double rounding = 1e-12;
            const bool tie = leaving != rows_ && ratio <= least * (1.0 + rounding) && ratio >= least * (1.0 - rounding);
            if (leaving == rows_ || (tie ? direction_[i] > direction_[leaving] : ratio < least)) {
                leaving = i;
                least = ratio;
            }
        }
        return leaving;
    }
    void price_again() {
        std::fill(multipliers_.begin(), multipliers_.end(), 0.0);
        for (std::size_t i = 0; i < rows_; ++i)
            for (std::size_t k = 0; k < rows_; ++k)
                multipliers_[k] += costs_[basis_[i]] * inverse_[i * rows_ + k];
    }

    std::size_t rows_;
    double artificial_cost_;
    std::vector<double> sides_;
    std::vector<column> columns_{};
    std::vector<double> costs_{};
    std::vector<char> is_basic_{};
    /// The inverse of the basis, row-major.
    std::vector<double> inverse_{};
    std::vector<std::size_t> basis_{};
    std::vector<double> values_{};
    std::vector<double> multipliers_{};
    std::vector<double> direction_{};
    std::size_t pivots_ = 0;
};

} // namespace optpipe::detail
