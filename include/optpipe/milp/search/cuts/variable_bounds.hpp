#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// A bound `constant + coefficient · integer` of a column.
struct variable_bound {
    std::uint32_t integer = 0;
    double coefficient = 0.0;
    double constant = 0.0;

    [[nodiscard]] double at(std::span<const double> point) const { return constant + coefficient * point[integer]; }
};

/// Collects rows that bound a non-integer column by a multiple of an integer variable.
class variable_bounds {
public:
    explicit variable_bounds(const problem& p) : problem_{&p}, lower_(p.columns()), upper_(p.columns()) {
        for (std::size_t i = 0; i < p.rows(); ++i)
            add(p.row_entries(i), p.row_lower[i], p.row_upper[i]);
    }

    /// Adds the bounds that a row implies. Only rows with two terms and exactly one integral column are used.
    void add(std::span<const entry> entries, double low, double up) {
        if (entries.size() != 2) return;
        const bool first = !problem_->is_integer(entries[0].column);
        const auto &y = entries[first ? 0 : 1], &x = entries[first ? 1 : 0];
        if (problem_->is_integer(y.column) || !problem_->is_integer(x.column)) return;
        for (const bool is_upper : {false, true}) {
            const double side = is_upper ? up : low;
            if (!std::isfinite(side)) continue;
            auto& ends = is_upper == (y.coefficient > 0.0) ? upper_ : lower_;
            const variable_bound end{x.column, -x.coefficient / y.coefficient, side / y.coefficient};
            if (is_usable(end) && ends[y.column].size() < with_.most_bounds_per_column) ends[y.column].push_back(end);
        }
    }

    /// The tightest bound at the point; null if there is none.
    [[nodiscard]] const variable_bound* least_upper(std::size_t j, std::span<const double> point) const {
        const auto best = std::min_element(upper_[j].begin(), upper_[j].end(),
                                           [&](const auto& a, const auto& b) { return a.at(point) < b.at(point); });
        return best == upper_[j].end() ? nullptr : &*best;
    }
    [[nodiscard]] const variable_bound* greatest_lower(std::size_t j, std::span<const double> point) const {
        const auto best = std::max_element(lower_[j].begin(), lower_[j].end(),
                                           [&](const auto& a, const auto& b) { return a.at(point) < b.at(point); });
        return best == lower_[j].end() ? nullptr : &*best;
    }
    [[nodiscard]] std::size_t bytes() const { return bytes_of_lists(lower_) + bytes_of_lists(upper_); }

private:
    static constexpr cut_parameters with_{};

    static bool is_usable(const variable_bound& end) {
        return std::max(std::abs(end.coefficient), std::abs(end.constant)) <= with_.largest_bound_coefficient;
    }

    const problem* problem_;
    std::vector<std::vector<variable_bound>> lower_, upper_;
};

} // namespace optpipe::milp::search
