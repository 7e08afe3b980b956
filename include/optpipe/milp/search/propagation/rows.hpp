#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/problem.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"
#include "optpipe/milp/search/propagation/literal.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// One term `weight · bound`, with a positive weight.
struct signed_term {
    double weight = 0.0;
    bound_index bound = 0;
};

/// One side of a row, expressed by bounds of columns. The sum of the terms is the row's least activity, and must be at
/// most `limit`.
struct signed_row {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    double limit = 0.0;
    /// A violation up to this slack is no contradiction.
    double slack = 0.0;
    /// Error of the limit.
    double noise = 0.0;
    /// Whether weights and columns are integral, and doubles represent all sums exactly.
    bool exact = false;
};

/// All rows as signed rows, and the rows of each bound.
class signed_rows {
public:
    explicit signed_rows(std::size_t columns) : watchers_(2 * columns) {}

    [[nodiscard]] std::size_t size() const { return rows_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(rows_, terms_) + bytes_of_lists(watchers_); }
    [[nodiscard]] const signed_row& operator[](std::size_t i) const { return rows_[i]; }
    [[nodiscard]] std::span<const signed_term> terms(std::size_t i) const {
        return std::span{terms_}.subspan(rows_[i].first, rows_[i].count);
    }
    [[nodiscard]] std::span<const std::uint32_t> watchers(bound_index b) const { return watchers_[b]; }

    /// Adds the side: sum of terms <= upper.
    std::size_t add(std::span<const entry> entries, double upper, const problem& p, double noise = 0.0) {
        return add(entries, 1.0, upper, noise, p);
    }
    /// Adds the side: sum of terms >= lower.
    std::size_t add_lower(std::span<const entry> entries, double lower, const problem& p, double noise = 0.0) {
        return add(entries, -1.0, -lower, noise, p);
    }
    void set_limit(std::size_t i, double limit, const numbers& n) { set_limit(i, limit, n.slack(limit), n); }
    void set_limit(std::size_t i, double limit, double slack, const numbers& n) {
        rows_[i].limit = rows_[i].exact ? std::floor(limit + n.feasibility) : limit;
        rows_[i].slack = rows_[i].exact ? 0.5 : slack;
    }

private:
    std::size_t add(std::span<const entry> entries, double sign, double limit, double noise, const problem& p) {
        signed_row r{static_cast<std::uint32_t>(terms_.size()), 0, limit, 0.0, noise, true};
        const auto id = static_cast<std::uint32_t>(rows_.size());
        double size = std::abs(limit) < infinity ? std::abs(limit) : 0.0;
        for (const auto& e : entries) {
            const double weight = sign * e.coefficient;
            if (weight == 0.0) continue;
            const auto b = weight > 0.0 ? lower_of(e.column) : upper_of(e.column);
            terms_.push_back({std::abs(weight), b});
            watchers_[b].push_back(id);
            r.exact = r.exact && p.is_integral(e.column) && is_integral(weight);
            size += std::abs(weight) * size_of(e.column, p);
            ++r.count;
        }
        r.exact = r.exact && r.count > 0 && size < largest_exact_integer;
        rows_.push_back(r);
        set_limit(id, limit, p.tolerances);
        return id;
    }
    /// The column's largest possible magnitude, at most `huge`.
    static double size_of(std::size_t j, const problem& p) {
        double size = 0.0;
        for (const double bound : {p.lower[j], p.upper[j]})
            size = std::max(size, std::min(std::abs(bound), p.tolerances.huge));
        return size;
    }

    std::vector<signed_row> rows_;
    std::vector<signed_term> terms_;
    std::vector<std::vector<std::uint32_t>> watchers_;
};

/// A row's least activity, and its number of unbounded terms.
struct row_sum {
    double finite = 0.0;
    std::size_t infinite = 0;
    std::size_t where = 0; ///< index of an unbounded term

    template <class ValueOf> row_sum(std::span<const signed_term> terms, ValueOf value_of) {
        for (std::size_t k = 0; k < terms.size(); ++k) {
            const double value = value_of(terms[k].bound);
            if (value == -infinity) {
                ++infinite;
                where = k;
            } else {
                finite += terms[k].weight * value;
            }
        }
    }
};

/// Rounding error of a sum of terms compared with a limit.
template <class ValueOf>
[[nodiscard]] double noise_of(std::span<const signed_term> terms, double limit, ValueOf value_of) {
    double largest = std::abs(limit);
    for (const auto& t : terms) {
        const double value = value_of(t.bound);
        if (std::isfinite(value)) largest = std::max(largest, std::abs(t.weight * value));
    }
    return noise_of_sum(largest);
}

/// Finds the weakest visible literals with which the row still implies `target`. Without a target, finds the weakest
/// visible literals that still contradict the row. The literals that are latest on the trail are weakened first.
class row_explanation {
public:
    row_explanation(const domains& d, const signed_rows& rows, const numbers& n)
        : domains_{d}, rows_{rows}, numbers_{n} {}

    void contradiction(std::size_t row, std::vector<literal>& out) {
        const auto& r = rows_[row];
        collect(rows_.terms(row), r.count);
        spend(total_ - r.limit - (r.exact ? 1.0 : r.slack + r.noise + noise_of_sum(largest_)), out);
    }
    /// Explains a contradiction of a row that isn't stored. With the weakened literals, the row must still be violated
    /// by at least `margin`.
    void contradiction(std::span<const signed_term> terms, double limit, double margin, std::vector<literal>& out) {
        collect(terms, terms.size());
        spend(total_ - limit - margin - noise_of_sum(largest_), out);
    }
    void implied(std::size_t row, literal target, std::vector<literal>& out) {
        const auto& r = rows_[row];
        implied(rows_.terms(row), r.limit + r.noise, r.exact, target, out);
    }
    void implied(std::span<const signed_term> terms, double limit, bool exact, literal target,
                 std::vector<literal>& out) {
        std::size_t k = 0;
        while (opposite(terms[k].bound) != target.bound)
            ++k;
        const double weight = terms[k].weight;
        collect(terms, k);
        const double given = total_ - limit - (exact ? 0.0 : noise_of_sum(std::max(largest_, std::abs(limit))));
        if (!domains_.is_integral(column_of(target.bound)))
            spend(given - weight * target.value, out);
        else if (exact)
            spend(given - weight * (target.value - 1.0) - 1.0, out);
        else
            spend(given - weight * (target.value - 1.0 + 2.0 * numbers_.integrality), out);
    }

private:
    struct part {
        trail_position bound_change;
        double weight;
        literal needed;
    };

    void collect(std::span<const signed_term> terms, std::size_t skipped) {
        total_ = 0.0;
        largest_ = 0.0;
        parts_.clear();
        for (std::size_t k = 0; k < terms.size(); ++k) {
            if (k == skipped) continue;
            const auto b = terms[k].bound;
            const double value = domains_.visible(b);
            total_ += terms[k].weight * value;
            largest_ = std::max(largest_, std::abs(terms[k].weight * value));
            if (value > domains_.at_root(b)) parts_.push_back({domains_.last_change(b), terms[k].weight, {b, value}});
        }
        std::sort(parts_.begin(), parts_.end(),
                  [](const part& a, const part& b) { return a.bound_change > b.bound_change; });
    }
    void spend(double surplus, std::vector<literal>& out) {
        const double floor = numbers_.zero * std::max(1.0, std::abs(total_));
        surplus -= floor;
        std::size_t kept = 0;
        for (const auto& p : parts_) {
            const double price = p.weight * (p.needed.value - domains_.at_root(p.needed.bound));
            if (price <= surplus)
                surplus -= price;
            else
                parts_[kept++] = p;
        }
        parts_.resize(kept);
        for (auto& p : parts_) {
            if (surplus > 0.0) surplus -= weaken(p, surplus);
            out.push_back(p.needed);
        }
    }
    /// Lowers the value of a literal as far as the surplus allows. Returns the part of the surplus that was used.
    double weaken(part& p, double surplus) {
        const double value = p.needed.value;
        double weakest = value - surplus / p.weight;
        if (domains_.is_integral(column_of(p.needed.bound))) weakest = std::ceil(weakest);
        if (weakest >= value) return 0.0;
        p.needed.value = weakest;
        return p.weight * (value - weakest);
    }

    const domains& domains_;
    const signed_rows& rows_;
    const numbers& numbers_;
    double total_ = 0.0;
    double largest_ = 0.0; ///< magnitude of the largest term
    std::vector<part> parts_;
};

} // namespace optpipe::milp::search
