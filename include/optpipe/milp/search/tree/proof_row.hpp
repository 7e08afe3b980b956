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

/// Rows of a relaxation beyond those of the problem: cuts that hold everywhere.
using extra_rows = std::vector<sparse_row>;

[[nodiscard]] inline std::size_t bytes_of_rows(const extra_rows& rows) {
    std::size_t sum = bytes_of(rows);
    for (const auto& r : rows)
        sum += bytes_of(r.entries);
    return sum;
}

/// The sum of a relaxation's rows with multipliers, and of the objective below its cutoff: one row that holds wherever
/// those do. If the bounds contradict it, the relaxation has no point there worth looking for, whatever the linear
/// solver's arithmetic was.
class proof_row {
public:
    proof_row(const problem& p, const extra_rows& extra)
        : problem_{&p}, extra_{&extra}, sums_(p.columns(), 0.0), sizes_(p.columns(), 0.0) {}

    /// `multipliers` one per row, above 0 for lower sides; `share` of the objective: with none, what is proven is that
    /// there is no point at all, which must then hold whatever the noise in the rows' sides.
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
        if (share > 0.0) noise_ = 0.0; // the cutoff has its distance already
        noise_ += arithmetic_;
    }
    /// Leaves out what is too small to count, at the price of what it could be by the bounds of the root.
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
    /// The same for moving bounds by it: with what it may be off by, but for the tolerance.
    [[nodiscard]] double safe_limit() const { return limit_ + noise_ + rounding * magnitude_; }
    /// By how much the limit must be passed before that is a contradiction, the arithmetic aside.
    [[nodiscard]] double noise() const { return noise_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(sums_, sizes_, terms_); }
    /// Whether the bounds contradict it, by more than the noise and than the arithmetic may have gone wrong.
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
    std::vector<double> sizes_; ///< of what was added up, without signs
    std::vector<signed_term> terms_;
    double limit_ = 0.0;
    double magnitude_ = 0.0; ///< of what the limit was added up from
    double noise_ = 0.0;
    double arithmetic_ = 0.0; ///< of that, what computing the rows has left
};

} // namespace optpipe::milp::search
