#pragma once

#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/feasibility.hpp"
#include "optpipe/milp/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace optpipe::milp::presolving {

struct column_entry {
    row at;
    double coefficient = 0.0;
};

/// Range of a row's activity within the bounds of its columns. Each end is a sum of finite terms, and a number of
/// infinite terms.
struct activity_range {
    double least = 0.0;
    double greatest = 0.0;
    double size = 0.0; ///< magnitude of the largest term
    std::size_t open_below = 0;
    std::size_t open_above = 0;
    bool is_exact = true; ///< whether all terms are integral

    void add(double coefficient, double lower, double upper) {
        add_end(coefficient * (coefficient > 0.0 ? lower : upper), least, open_below);
        add_end(coefficient * (coefficient > 0.0 ? upper : lower), greatest, open_above);
    }
    /// Rounding error of the sums; 0 if all terms are integral.
    [[nodiscard]] double noise() const { return noise_within(size, is_exact); }
    /// Rounding error of the sums when they are compared with the given sides.
    [[nodiscard]] double noise(double lower, double upper) const {
        double largest = size;
        bool exact = is_exact;
        for (const double side : {lower, upper})
            if (std::isfinite(side)) {
                largest = std::max(largest, std::abs(side));
                exact = exact && side == std::round(side);
            }
        return noise_within(largest, exact);
    }
    [[nodiscard]] double lower() const { return open_below == 0 ? least : -infinity; }
    [[nodiscard]] double upper() const { return open_above == 0 ? greatest : infinity; }
    /// The least sum of all terms except the given term. Contract: the given term is part of the sums.
    [[nodiscard]] double lower_without(double coefficient, double lower, double upper) const {
        const double low = coefficient > 0.0 ? lower : upper;
        if (!std::isfinite(low)) return open_below == 1 ? least : -infinity;
        return open_below == 0 ? least - coefficient * low : -infinity;
    }
    [[nodiscard]] double upper_without(double coefficient, double lower, double upper) const {
        const double high = coefficient > 0.0 ? upper : lower;
        if (!std::isfinite(high)) return open_above == 1 ? greatest : infinity;
        return open_above == 0 ? greatest - coefficient * high : infinity;
    }

private:
    /// Sums of integers below this magnitude are exact.
    static constexpr double largest_exact = 1e15;

    void add_end(double part, double& sum, std::size_t& open) {
        const double magnitude = std::abs(part);
        if (magnitude == infinity) {
            ++open;
            return;
        }
        sum += part;
        size = std::max(size, magnitude);
        // `std::round` would be a function call in this innermost loop of propagation.
        is_exact =
            is_exact && magnitude < largest_exact && part == static_cast<double>(static_cast<std::int64_t>(part));
    }
    static double noise_within(double size, bool exact) {
        return exact && size < largest_exact ? 0.0 : noise_of_sum(size);
    }
};

template <class Terms> [[nodiscard]] auto find_term(Terms& terms, variable x) {
    return std::lower_bound(terms.begin(), terms.end(), x,
                            [](const term& t, variable wanted) { return t.column < wanted; });
}

/// A model under reduction, to be minimized. Methods read the model, and only reductions change it. Rows and columns
/// keep their indices. A removed row or column is empty, and `has` is false for it. Each row and column has the time of
/// its last change, on a clock that ticks once per batch of reductions. A row changes with its columns' bounds. A
/// column changes with its rows.
class reducible {
public:
    /// `noise` is the error of each row's sides. If `noise` is empty, only the sides' last digits are rounded.
    explicit reducible(const model& m, std::span<const double> noise = {})
        : sign_{m.direction() == sense::minimize ? 1.0 : -1.0} {
        offset_ = sign_ * m.offset();
        for (const variable x : m.all_variables())
            columns_.push_back({m.lower(x), m.upper(x), sign_ * m.cost(x), m.is_integer(x), true, false, 0, {}});
        for (const row r : m.all_rows()) {
            const auto terms = m.terms(r);
            rows_.push_back({m.row_lower(r),
                             m.row_upper(r),
                             noise.empty() ? noise_of_sides(m, r) : noise[r.position()],
                             true,
                             0,
                             {terms.begin(), terms.end()}});
            for (const auto& t : terms)
                columns_[t.column.position()].entries.push_back({r, t.coefficient});
        }
    }

    [[nodiscard]] index_range<variable> all_variables() const { return index_range<variable>{columns_.size()}; }
    [[nodiscard]] index_range<row> all_rows() const { return index_range<row>{rows_.size()}; }
    [[nodiscard]] bool has(variable x) const { return at(x).is_there; }
    [[nodiscard]] bool has(row r) const { return at(r).is_there; }

    [[nodiscard]] double lower(variable x) const { return at(x).lower; }
    [[nodiscard]] double upper(variable x) const { return at(x).upper; }
    [[nodiscard]] double cost(variable x) const { return at(x).cost; }
    [[nodiscard]] bool is_integer(variable x) const { return at(x).is_integer; }
    [[nodiscard]] bool is_binary(variable x) const { return is_integer(x) && lower(x) == 0.0 && upper(x) == 1.0; }
    [[nodiscard]] const std::vector<column_entry>& entries(variable x) const { return at(x).entries; }

    [[nodiscard]] double lower(row r) const { return at(r).lower; }
    [[nodiscard]] double upper(row r) const { return at(r).upper; }
    /// Error of the row's sides.
    [[nodiscard]] double noise(row r) const { return at(r).noise; }
    [[nodiscard]] bool is_equation(row r) const { return lower(r) == upper(r); }
    /// The terms of the row, sorted by column.
    [[nodiscard]] const std::vector<term>& terms(row r) const { return at(r).terms; }
    [[nodiscard]] double coefficient(row r, variable x) const {
        const auto found = find_term(at(r).terms, x);
        return found != at(r).terms.end() && found->column == x ? found->coefficient : 0.0;
    }
    [[nodiscard]] activity_range activity(row r) const {
        activity_range range;
        for (const auto& t : terms(r))
            range.add(t.coefficient, lower(t.column), upper(t.column));
        return range;
    }

    /// The largest magnitude of the column's finite bounds, but at least 1.
    [[nodiscard]] double size(variable x) const {
        const auto finite = [](double bound) { return std::isfinite(bound) ? feasibility::scale(bound) : 1.0; };
        return std::max(finite(lower(x)), finite(upper(x)));
    }
    /// The error of a row's activity if the column's coefficient is off by `off`.
    [[nodiscard]] double error_in_row(variable x, double coefficient, double off) const {
        return milp::error_in_row(coefficient, off, lower(x), upper(x));
    }
    /// Sets a computed coefficient, and adds its error to the row's noise.
    void set_coefficient(row r, variable x, rounded value) {
        set_coefficient(r, x, value.value);
        if (value.noise > 0.0) add_noise(r, value.noise * size(x));
    }

    /// The offset and the cost of a column, with the sign of the given model. The stored numbers are negated if the
    /// given model maximizes.
    [[nodiscard]] double offset() const { return sign_ * offset_; }
    [[nodiscard]] double own_cost(variable x) const { return sign_ * cost(x); }

    [[nodiscard]] std::uint32_t now() const { return clock_; }
    void tick() { ++clock_; }
    [[nodiscard]] bool has_changed(variable x, std::uint32_t since) const { return at(x).changed >= since; }
    [[nodiscard]] bool has_changed(row r, std::uint32_t since) const { return at(r).changed >= since; }

    void set_bounds(variable x, double lower, double upper) {
        at(x).lower = lower;
        at(x).upper = upper;
        touch(x);
        for (const auto& e : entries(x))
            at(e.at).changed = clock_;
    }
    void set_bounds(row r, double lower, double upper) {
        at(r).lower = lower;
        at(r).upper = upper;
        touch_with_columns(r);
    }
    void add_noise(row r, double noise) { at(r).noise += noise; }
    /// Subtracts coefficient · value from both sides of a row. `noise` is the error of the value.
    void shift(row r, double coefficient, double value, double noise = 0.0) {
        const auto below = difference(lower(r), coefficient, value);
        const auto above = difference(upper(r), coefficient, value);
        add_noise(r, std::max(below.noise, above.noise) + std::abs(coefficient) * noise);
        if (coefficient * value != 0.0) set_bounds(r, below.value, above.value);
    }
    void set_integer(variable x, bool is_integer) { at(x).is_integer = is_integer; }
    void set_cost(variable x, double cost) {
        at(x).cost = cost;
        touch(x);
    }
    void add_to_offset(double amount) { offset_ += amount; }

    /// Sets a coefficient. A value of 0 removes the term.
    void set_coefficient(row r, variable x, double value) {
        auto& terms = at(r).terms;
        auto& entries = at(x).entries;
        const auto in_row = find_term(terms, x);
        const bool is_new = in_row == terms.end() || in_row->column != x;
        const auto in_column = std::find_if(entries.begin(), entries.end(), [r](const auto& e) { return e.at == r; });
        if (is_new && value != 0.0) {
            terms.insert(in_row, {x, value});
            entries.push_back({r, value});
        } else if (!is_new && value != 0.0) {
            in_row->coefficient = value;
            in_column->coefficient = value;
        } else if (!is_new) {
            terms.erase(in_row);
            entries.erase(in_column);
        }
        touch(x);
        touch_with_columns(r);
    }

    /// Removes a row. Columns still list the row until the next `normalize`.
    void remove(row r) {
        touch_with_columns(r);
        for (const auto& t : terms(r)) {
            if (!at(t.column).has_stale) stale_.push_back(t.column);
            at(t.column).has_stale = true;
        }
        at(r).terms.clear();
        at(r).is_there = false;
    }
    /// Removes deleted rows from the lists of their columns. All deleted rows are removed at once, because a column may
    /// list many deleted rows.
    void normalize() {
        for (const variable x : stale_) {
            at(x).has_stale = false;
            std::erase_if(at(x).entries, [this](const column_entry& e) { return !has(e.at); });
        }
        stale_.clear();
    }
    /// Removes a column from all rows. The bounds of the rows stay the same.
    void remove(variable x) {
        touch(x);
        for (const auto& e : entries(x)) {
            if (!has(e.at)) continue;
            auto& terms = at(e.at).terms;
            terms.erase(find_term(terms, x));
            touch_with_columns(e.at);
        }
        at(x).entries.clear();
        at(x).is_there = false;
    }

private:
    struct column_data {
        double lower;
        double upper;
        double cost;
        bool is_integer;
        bool is_there;
        bool has_stale;
        std::uint32_t changed;
        std::vector<column_entry> entries;
    };
    struct row_data {
        double lower;
        double upper;
        double noise;
        bool is_there;
        std::uint32_t changed;
        std::vector<term> terms;
    };

    /// Rounding error of the given sides; 0 if all coefficients and sides of the row are integral.
    static double noise_of_sides(const model& m, row r) {
        const auto is_integral = [](double v) { return v == std::round(v); };
        const auto terms = m.terms(r);
        double largest = 0.0;
        bool all_integral =
            std::all_of(terms.begin(), terms.end(), [&](const term& t) { return is_integral(t.coefficient); });
        for (const double side : {m.row_lower(r), m.row_upper(r)})
            if (std::isfinite(side)) {
                largest = std::max(largest, std::abs(side));
                all_integral = all_integral && is_integral(side);
            }
        return all_integral ? 0.0 : 0.5 * std::numeric_limits<double>::epsilon() * largest;
    }
    void touch(variable x) { at(x).changed = clock_; }
    void touch_with_columns(row r) {
        at(r).changed = clock_;
        for (const auto& t : terms(r))
            touch(t.column);
    }

    [[nodiscard]] const column_data& at(variable x) const { return columns_[x.position()]; }
    [[nodiscard]] column_data& at(variable x) { return columns_[x.position()]; }
    [[nodiscard]] const row_data& at(row r) const { return rows_[r.position()]; }
    [[nodiscard]] row_data& at(row r) { return rows_[r.position()]; }

    double sign_;
    double offset_ = 0.0;
    std::uint32_t clock_ = 0;
    std::vector<column_data> columns_;
    std::vector<row_data> rows_;
    std::vector<variable> stale_;
};

} // namespace optpipe::milp::presolving
