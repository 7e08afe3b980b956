#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/rounding.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Mixed-integer roundings of single rows and of short sums of rows (Marchand and Wolsey, 2001): as long as no cut is
/// found, the continuous column farthest from its bounds is eliminated with another row that is tight at the point.
class aggregation {
public:
    explicit aggregation(const problem& p) : problem_{p}, rows_of_(p.columns()) {
        for (std::size_t i = 0; i < p.rows(); ++i)
            for (const auto& e : p.row_entries(i))
                if (!p.is_whole(e.column)) rows_of_[e.column].push_back({static_cast<std::uint32_t>(i), e.coefficient});
    }

    /// `extra` is the number of rows that the relaxation has beyond those of the problem.
    void separate(std::size_t extra, mixed_integer_rounding& rounding, std::span<const double> lower,
                  std::span<const double> upper, std::span<const double> point, cut_pool& pool) {
        std::size_t failures = 0;
        for (std::size_t i = 0; i < problem_.rows() && failures < most_failures; ++i) {
            if (!is_tight(i, point)) continue;
            std::vector<double> multipliers(problem_.rows() + extra, 0.0);
            multipliers[i] = 1.0;
            bool hit = false;
            for (std::size_t length = 0; length < most_rows && !hit; ++length) {
                if (auto found = rounding.separate(multipliers, point)) {
                    pool.add(std::move(*found));
                    hit = true;
                } else if (!extend(multipliers, lower, upper, point)) {
                    break;
                }
            }
            failures = hit ? 0 : failures + 1;
        }
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_of_lists(rows_of_); }

private:
    static constexpr std::size_t most_rows = 5;
    static constexpr std::size_t most_failures = 500;

    struct occurrence {
        std::uint32_t row;
        double coefficient;
    };

    [[nodiscard]] bool is_tight(std::size_t i, std::span<const double> point) const {
        constexpr double near = 0.1;
        const double sum = problem_.activity(i, point);
        const double distance = std::min(sum - problem_.row_lower[i], problem_.row_upper[i] - sum);
        return distance <= near * std::max(1.0, std::abs(sum));
    }
    bool extend(std::vector<double>& multipliers, std::span<const double> lower, std::span<const double> upper,
                std::span<const double> point) const {
        std::vector<double> sums(problem_.columns(), 0.0);
        for (std::size_t i = 0; i < problem_.rows(); ++i)
            if (multipliers[i] != 0.0)
                for (const auto& e : problem_.row_entries(i))
                    sums[e.column] += multipliers[i] * e.coefficient;
        std::size_t column = problem_.columns();
        double farthest = problem_.tolerances.feasibility;
        for (std::size_t j = 0; j < sums.size(); ++j) {
            if (problem_.is_whole(j) || std::abs(sums[j]) <= problem_.tolerances.zero) continue;
            const double distance = std::min(point[j] - lower[j], upper[j] - point[j]);
            if (distance <= farthest) continue;
            farthest = distance;
            column = j;
        }
        if (column == problem_.columns()) return false;
        for (const auto& o : rows_of_[column]) {
            if (multipliers[o.row] != 0.0 || !is_tight(o.row, point)) continue;
            multipliers[o.row] = -sums[column] / o.coefficient;
            return true;
        }
        return false;
    }

    const problem& problem_;
    std::vector<std::vector<occurrence>> rows_of_;
};

} // namespace optpipe::milp::search
