#pragma once

#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/growing_lists.hpp"
#include "optpipe/milp/lp/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

struct entry {
    int column;
    int row;
    double value;
};

/// L and U of a square matrix in the order of the pivots: step k eliminates `rows[k]` with column `columns[k]`.
struct pivot_sequence {
    std::vector<int> rows;
    std::vector<int> columns;
    std::vector<double> values;
    /// L: the multiples of each pivot row that were subtracted from other rows.
    growing_lists lower;
    /// U: the entries above the pivots.
    std::vector<entry> upper;

    void reset(int size) {
        rows.clear();
        columns.clear();
        values.clear();
        upper.clear();
        lower.reset(at(size));
    }
    void pivot(int row, int column, double value) {
        rows.push_back(row);
        columns.push_back(column);
        values.push_back(value);
    }
};

struct pivot_rules {
    /// A pivot is at least `least_pivot`, and at least this share (0 to 1) of its column's largest entry. Computed
    /// entries with a magnitude up to `drop` become 0.
    double threshold = 0.1;
    double least_pivot = 1e-11;
    double drop = 1e-14;
};

/// Sets of columns (or rows), grouped by their number of entries.
class count_buckets {
public:
    void reset(int items, int most) {
        first_.assign(at(most) + 2, none);
        next_.assign(at(items), none);
        previous_.assign(at(items), none);
        count_.assign(at(items), none);
    }
    [[nodiscard]] int first(int count) const { return first_[at(count)]; }
    [[nodiscard]] int next(int item) const { return next_[at(item)]; }
    void insert(int item, int count) {
        count_[at(item)] = count;
        previous_[at(item)] = none;
        next_[at(item)] = first_[at(count)];
        if (next_[at(item)] != none) previous_[at(next_[at(item)])] = item;
        first_[at(count)] = item;
    }
    void remove(int item) {
        const int count = count_[at(item)];
        if (count == none) return;
        const int before = previous_[at(item)];
        const int after = next_[at(item)];
        (before == none ? first_[at(count)] : next_[at(before)]) = after;
        if (after != none) previous_[at(after)] = before;
        count_[at(item)] = none;
    }
    void move(int item, int count) {
        if (count_[at(item)] == count) return;
        remove(item);
        insert(item, count);
    }
    static constexpr int none = -1;

private:
    std::vector<int> first_, next_, previous_, count_;
};

/// Gaussian elimination of the matrix without singletons. Pivots are chosen by the rule of Markowitz (1957) with
/// threshold pivoting. Each step takes the pivot with least fill-in among a few of the shortest columns and rows.
class markowitz {
public:
    markowitz(int rows, int columns, const pivot_rules& rules, pivot_sequence& out)
        : rules_{rules}, out_{out}, size_{std::max(rows, columns)} {
        columns_.reset(at(columns));
        rows_.reset(at(rows));
        multiplier_.assign(at(rows), 0.0);
        largest_.assign(at(columns), unknown);
        touched_.assign(at(rows), 0);
    }
    void reserve_row(int row, int capacity) { rows_.reserve(row, capacity); }
    void reserve_column(int column, int capacity) { columns_.reserve(column, capacity); }
    void add(int row, int column, double value) {
        columns_.append(column, row, value);
        rows_.append(row, column, 0.0);
    }
    /// Eliminates the given rows and columns. Rows and columns that can't be eliminated get no pivot.
    void run(const std::vector<int>& rows, const std::vector<int>& columns) {
        column_counts_.reset(size_, size_);
        row_counts_.reset(size_, size_);
        for (const int c : columns)
            column_counts_.insert(c, columns_.size(c));
        for (const int r : rows)
            row_counts_.insert(r, rows_.size(r));
        longest_ = static_cast<int>(std::max(rows.size(), columns.size()));
        while (choose())
            eliminate();
    }

private:
    static constexpr double unknown = -1.0;

    bool choose() {
        merit_ = std::numeric_limits<std::int64_t>::max();
        searched_ = 0;
        for (int count = 1; count <= longest_; ++count) {
            for (int c = column_counts_.first(count); c != count_buckets::none;) {
                const int next = column_counts_.next(c);
                if (search_column(c) && enough(count)) return true;
                c = next;
            }
            for (int r = row_counts_.first(count); r != count_buckets::none; r = row_counts_.next(r))
                if (search_row(r) && enough(count)) return true;
        }
        return merit_ != std::numeric_limits<std::int64_t>::max();
    }
    /// Whether to stop the search for a pivot.
    bool enough(int count) const {
        return searched_ >= parameters.markowitz_search || merit_ <= static_cast<std::int64_t>(count - 1) * (count - 1);
    }
    double largest(int column) {
        double& best = largest_[at(column)];
        if (best != unknown) return best;
        best = 0.0;
        for (int k = 0; k < columns_.size(column); ++k)
            best = std::max(best, std::abs(columns_.value(column)[k]));
        return best;
    }
    bool search_column(int column) {
        const double most = largest(column);
        if (most < rules_.least_pivot) {
            column_counts_.remove(column);
            return false;
        }
        ++searched_;
        const auto others = static_cast<std::int64_t>(columns_.size(column) - 1);
        for (int k = 0; k < columns_.size(column); ++k) {
            const double value = columns_.value(column)[k];
            if (std::abs(value) >= rules_.threshold * most) offer(columns_.index(column)[k], column, value, others);
        }
        return true;
    }
    bool search_row(int row) {
        ++searched_;
        const auto merit = merit_;
        for (int k = 0; k < rows_.size(row); ++k) {
            const int column = rows_.index(row)[k];
            const double value = columns_.value(column)[columns_.find(column, row)];
            const double most = largest(column);
            if (most >= rules_.least_pivot && std::abs(value) >= rules_.threshold * most)
                offer(row, column, value, static_cast<std::int64_t>(columns_.size(column) - 1));
        }
        return merit_ < merit;
    }
    void offer(int row, int column, double value, std::int64_t others) {
        const auto merit = others * (rows_.size(row) - 1);
        if (merit > merit_ || (merit == merit_ && std::abs(value) <= std::abs(value_))) return;
        merit_ = merit;
        row_ = row;
        column_ = column;
        value_ = value;
    }

    void eliminate() {
        out_.pivot(row_, column_, value_);
        take_multipliers();
        for (int k = 0; k < rows_.size(row_); ++k)
            if (const int c = rows_.index(row_)[k]; c != column_) reduce(c);
        row_counts_.remove(row_);
        column_counts_.remove(column_);
        rows_.clear(row_);
        for (int k = 0; k < columns_.size(column_); ++k)
            multiplier_[at(columns_.index(column_)[k])] = 0.0;
        columns_.clear(column_);
    }
    void take_multipliers() {
        const int size = columns_.size(column_);
        if (size > 1) out_.lower.reserve(row_, size - 1);
        for (int k = 0; k < size; ++k) {
            const int r = columns_.index(column_)[k];
            if (r == row_) continue;
            const double multiplier = columns_.value(column_)[k] / value_;
            multiplier_[at(r)] = multiplier;
            out_.lower.append(row_, r, multiplier);
            rows_.remove(r, column_);
            row_counts_.move(r, rows_.size(r));
        }
    }
    /// Eliminates the entries of one column by subtracting multiples of the column's entry in the pivot row.
    void reduce(int column) {
        const int place = columns_.find(column, row_);
        const double above = columns_.value(column)[place];
        columns_.remove_at(column, place);
        out_.upper.push_back({column, row_, above});
        largest_[at(column)] = unknown;
        ++stamp_;
        for (int k = columns_.size(column) - 1; k >= 0; --k) {
            const int r = columns_.index(column)[k];
            if (multiplier_[at(r)] == 0.0) continue;
            touched_[at(r)] = stamp_;
            double& value = columns_.value(column)[k];
            value -= multiplier_[at(r)] * above;
            if (std::abs(value) > rules_.drop) continue;
            columns_.remove_at(column, k);
            rows_.remove(r, column);
            row_counts_.move(r, rows_.size(r));
        }
        fill_in(column, above);
        column_counts_.move(column, columns_.size(column));
    }
    void fill_in(int column, double above) {
        for (int k = 0; k < columns_.size(column_); ++k) {
            const int r = columns_.index(column_)[k];
            if (r == row_ || touched_[at(r)] == stamp_) continue;
            columns_.append(column, r, -multiplier_[at(r)] * above);
            rows_.append(r, column, 0.0);
            row_counts_.move(r, rows_.size(r));
        }
    }

    pivot_rules rules_;
    pivot_sequence& out_;
    int size_;
    int longest_ = 0;
    growing_lists columns_, rows_;
    count_buckets column_counts_, row_counts_;
    std::vector<double> multiplier_, largest_;
    std::vector<int> touched_;
    int stamp_ = 0;
    std::int64_t merit_ = 0;
    int searched_ = 0;
    int row_ = 0;
    int column_ = 0;
    double value_ = 0.0;
};

} // namespace optpipe::milp::lp
