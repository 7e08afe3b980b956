#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/cuts/rounding.hpp"
#include "optpipe/milp/search/cuts/sparse_sum.hpp"
#include "optpipe/milp/search/cuts/variable_bounds.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Mixed-integer roundings of single rows and of short sums of rows (Marchand and Wolsey, 2001). Until a cut is found,
/// another row that is tight at the point is added. The added row eliminates the non-integer column that is farthest
/// from its bounds. In a network, the sum follows a path of the flow while the eliminated columns' coefficients have
/// one sign.
class aggregation {
public:
    explicit aggregation(const problem& p) : problem_{p}, rows_of_(p.columns()), sum_{p.columns()} {
        for (std::size_t i = 0; i < p.rows(); ++i) {
            if (is_variable_bound(i)) continue;
            for (const auto& e : p.row_entries(i))
                if (!p.is_integer(e.column))
                    rows_of_[e.column].push_back({static_cast<std::uint32_t>(i), e.coefficient});
        }
    }

    /// `lower` and `upper` are the bounds at the root. `ends` has the bounds that depend on integer variables.
    void separate(mixed_integer_rounding& rounding, std::span<const double> lower, std::span<const double> upper,
                  const variable_bounds& ends, std::span<const double> point, cut_pool& pool) {
        find_tight_rows(point);
        find_distances(lower, upper, ends, point);
        const auto last = rounding.effort() + with_.aggregation_effort;
        const auto first = next_row_;
        std::size_t failures = 0;
        for (std::size_t k = 0; k < problem_.rows() && failures < with_.most_failures; ++k) {
            const auto i = static_cast<std::uint32_t>((first + k) % problem_.rows());
            next_row_ = i;
            if (rounding.effort() > last) return;
            if (tight_[i] == 0) continue;
            bool hit = false;
            for (const auto kind : {path::any, path::rising, path::falling})
                hit = follow_path(i, kind, rounding, point, pool) || hit;
            failures = hit ? 0 : failures + 1;
        }
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_of_lists(rows_of_); }

private:
    static constexpr cut_parameters with_{};

    struct occurrence {
        std::uint32_t row;
        double coefficient;
    };
    /// The columns that may be eliminated: all, or only those with a positive or negative coefficient.
    enum class path : unsigned char { any, rising, falling };

    [[nodiscard]] bool is_variable_bound(std::size_t i) const {
        const auto terms = problem_.row_entries(i);
        return terms.size() == 2 && problem_.is_integer(terms[0].column) != problem_.is_integer(terms[1].column);
    }
    void find_tight_rows(std::span<const double> point) {
        tight_.assign(problem_.rows(), 0);
        for (std::size_t i = 0; i < problem_.rows(); ++i) {
            const double sum = problem_.activity(i, point);
            const double distance = std::min(sum - problem_.row_lower[i], problem_.row_upper[i] - sum);
            tight_[i] = distance <= with_.nearly_tight * std::max(1.0, std::abs(sum)) ? 1 : 0;
        }
    }
    /// Computes the distances of non-integer columns from their nearer bound.
    void find_distances(std::span<const double> lower, std::span<const double> upper, const variable_bounds& ends,
                        std::span<const double> point) {
        distance_.assign(problem_.columns(), 0.0);
        for (std::size_t j = 0; j < problem_.columns(); ++j) {
            if (problem_.is_integer(j)) continue;
            double low = lower[j], up = upper[j];
            if (const auto* end = ends.greatest_lower(j, point)) low = std::max(low, end->at(point));
            if (const auto* end = ends.least_upper(j, point)) up = std::min(up, end->at(point));
            distance_[j] = std::min(point[j] - low, up - point[j]);
        }
    }

    bool follow_path(std::uint32_t first, path kind, mixed_integer_rounding& rounding, std::span<const double> point,
                     cut_pool& pool) {
        rows_.clear();
        sum_.clear();
        add_row(first, 1.0);
        for (std::size_t length = 1;; ++length) {
            if (kind == path::any || length > 1) // single rows are tried only with `path::any`
                if (auto found = rounding.separate(rows_, point)) {
                    pool.add(std::move(*found));
                    return true;
                }
            if (length == with_.most_aggregated_rows || !extend(kind)) return false;
        }
    }
    void add_row(std::uint32_t i, double multiplier) {
        rows_.push_back({i, multiplier});
        for (const auto& e : problem_.row_entries(i))
            sum_.add(e.column, multiplier * e.coefficient);
    }
    bool extend(path kind) {
        candidates_.clear();
        for (const auto j : sum_.touched()) {
            if (distance_[j] <= problem_.tolerances.feasibility || sum_.is_noise(j)) continue;
            if (kind != path::any && (sum_[j] > 0.0) != (kind == path::rising)) continue;
            candidates_.emplace_back(-distance_[j], j);
        }
        std::sort(candidates_.begin(), candidates_.end());
        for (const auto& [unused, j] : candidates_)
            if (const auto* o = partner(j)) {
                add_row(o->row, -sum_[j] / o->coefficient);
                return true;
            }
        return false;
    }
    /// The shortest tight row with the column that isn't yet in the sum, or null.
    [[nodiscard]] const occurrence* partner(std::size_t column) const {
        const occurrence* best = nullptr;
        for (const auto& o : rows_of_[column]) {
            const auto is_same = [&](const row_multiplier& r) { return r.row == o.row; };
            if (!tight_[o.row] || std::any_of(rows_.begin(), rows_.end(), is_same)) continue;
            if (!best || problem_.row_entries(o.row).size() < problem_.row_entries(best->row).size()) best = &o;
        }
        return best;
    }

    const problem& problem_;
    std::vector<std::vector<occurrence>> rows_of_;
    std::size_t next_row_ = 0;
    std::vector<unsigned char> tight_;
    std::vector<double> distance_;
    sparse_sum sum_;
    std::vector<row_multiplier> rows_;
    std::vector<std::pair<double, std::uint32_t>> candidates_;
};

} // namespace optpipe::milp::search
