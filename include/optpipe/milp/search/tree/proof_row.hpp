#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"
#include "optpipe/milp/search/propagation/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Rows of a relaxation in addition to the rows of the problem. The additional rows are cuts that hold everywhere.
using extra_rows = std::vector<sparse_row>;

/// A weighted sum of the relaxation's rows and the row "objective ≤ cutoff". Every point of the relaxation within the
/// cutoff satisfies this sum of rows. If the bounds contradict the sum, the relaxation has no point within the cutoff.
/// The proof doesn't depend on rounding errors of the linear solver.
class proof_row {
public:
    proof_row(const problem& p, const extra_rows& extra)
        : problem_{&p}, extra_{&extra}, sums_(p.columns(), 0.0), sizes_(p.columns(), 0.0) {}

    /// `multipliers` has one value per row, positive for a lower side. `share` is the multiplier of the objective. A
    /// row with `share` 0 proves that no point exists, for any noise in the rows' sides.
    void build(std::span<const double> multipliers, double share, double cutoff) {
        const auto& p = *problem_;
        std::fill(sums_.begin(), sums_.end(), 0.0);
        std::fill(sizes_.begin(), sizes_.end(), 0.0);
        limit_ = share > 0.0 ? share * cutoff : 0.0;
        magnitude_ = std::abs(limit_);
        noise_ = arithmetic_ = 0.0;
        if (share > 0.0)
            for (std::size_t j = 0; j < p.columns(); ++j)
                sizes_[j] = std::abs(sums_[j] = share * p.cost[j]);
        for (std::size_t i = 0; i < multipliers.size(); ++i) {
            const bool own = i < p.rows();
            const auto& more = *extra_;
            add(multipliers[i], own ? p.row_entries(i) : std::span<const entry>{more[i - p.rows()].entries},
                own ? p.row_lower[i] : more[i - p.rows()].lower, own ? p.row_upper[i] : more[i - p.rows()].upper);
            if (own) arithmetic_ += std::abs(multipliers[i]) * p.row_noise[i];
        }
        if (share > 0.0) noise_ = 0.0; // the cutoff already keeps a distance from the incumbent
        noise_ += arithmetic_;
    }
    /// Replaces a tiny term by its least value at the root, which moves to the limit.
    void normalize(const domains& d) {
        terms_.clear();
        double largest = 0.0;
        for (const double s : sums_)
            largest = std::max(largest, std::abs(s));
        const double least = problem_->tolerances.zero * std::max(1.0, largest);
        for (std::size_t j = 0; j < sums_.size(); ++j) {
            if (sums_[j] == 0.0) continue;
            const signed_term t{std::abs(sums_[j]), sums_[j] > 0.0 ? lower_of(j) : upper_of(j)};
            const double root = d.at_root(t.bound);
            const bool cancelled = t.weight <= rounding * sizes_[j];
            if ((cancelled || t.weight < least) && root > -infinity) {
                limit_ -= t.weight * root;
                magnitude_ += sizes_[j] * std::abs(root);
            } else if (!cancelled) {
                terms_.push_back(t);
            }
        }
    }

    [[nodiscard]] std::span<const signed_term> terms() const { return terms_; }
    [[nodiscard]] double limit() const { return limit_; }
    /// The limit used for tightening bounds. The limit includes all errors of the row, except the tolerance.
    [[nodiscard]] double safe_limit() const { return limit_ + noise_ + rounding * magnitude_; }
    /// The noise of the row. The bounds contradict the row only beyond this noise and the sum's rounding errors.
    [[nodiscard]] double noise() const { return noise_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(sums_, sizes_, terms_); }
    /// Whether the bounds contradict the row by more than noise and rounding errors.
    [[nodiscard]] bool contradicts(const domains& d) const {
        double magnitude = magnitude_;
        double least = -limit_;
        for (const auto& t : terms_) {
            const double part = t.weight * d[t.bound];
            if (!std::isfinite(part)) return false;
            least += part;
            magnitude += sizes_[column_of(t.bound)] * std::abs(d[t.bound]);
        }
        return least > noise_ + rounding * magnitude + std::numeric_limits<double>::min();
    }

private:
    void add(double multiplier, std::span<const entry> entries, double lower, double upper) {
        const double side = multiplier > 0.0 ? lower : upper;
        if (multiplier == 0.0 || !std::isfinite(side)) return;
        for (const auto& e : entries) {
            const double part = multiplier * e.coefficient;
            sums_[e.column] -= part;
            sizes_[e.column] += std::abs(part);
        }
        limit_ -= multiplier * side;
        magnitude_ += std::abs(multiplier * side);
        noise_ += std::abs(multiplier) * problem_->tolerances.noise_at(side);
    }

    static constexpr double rounding = 1e-12;

    const problem* problem_;
    const extra_rows* extra_;
    std::vector<double> sums_;
    std::vector<double> sizes_; ///< for each column, the sum of the magnitudes of its terms
    std::vector<signed_term> terms_;
    double limit_ = 0.0;
    double magnitude_ = 0.0; ///< sum of the magnitudes of the limit's terms
    double noise_ = 0.0;
    double arithmetic_ = 0.0; ///< the part of the noise that comes from computing rows
};

} // namespace optpipe::milp::search
