#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// A table of the gain of each pair of a row and a column.
struct gain_table {
    std::size_t rows = 0;
    std::size_t columns = 0;
    /// The gains, row by row. No gain is negative.
    std::vector<double> gain{};

    [[nodiscard]] double operator()(std::size_t row, std::size_t column) const { return gain[row * columns + column]; }
};

/// Prices of rows and columns. No price is negative. The prices of a row and a column sum to at least the gain of their
/// pair. The sum of all prices is thus at least the gain of every assignment.
struct assignment_prices {
    std::vector<double> of_row{};
    std::vector<double> of_column{};
};

/// Gives each column its least valid price, for the prices of the rows.
inline void fit_columns(const gain_table& of, assignment_prices& prices) {
    for (std::size_t j = 0; j < of.columns; ++j) {
        double most = 0.0;
        for (std::size_t i = 0; i < of.rows; ++i)
            most = std::max(most, of(i, j) - prices.of_row[i]);
        prices.of_column[j] = most;
    }
}
/// Gives each row its least valid price, for the prices of the columns.
inline void fit_rows(const gain_table& of, assignment_prices& prices) {
    for (std::size_t i = 0; i < of.rows; ++i) {
        double most = 0.0;
        for (std::size_t j = 0; j < of.columns; ++j)
            most = std::max(most, of(i, j) - prices.of_column[j]);
        prices.of_row[i] = most;
    }
}

/// Finds prices by the Hungarian method (Kuhn 1955) with shortest augmenting paths. For a square table, the sum of the
/// prices equals the gain of the best assignment. O(n³) for n rows or columns.
[[nodiscard]] inline assignment_prices least_prices(const gain_table& of) {
    const std::size_t n = std::max(of.rows, of.columns);
    const auto cost = [&](std::size_t i, std::size_t j) { return i < of.rows && j < of.columns ? -of(i, j) : 0.0; };
    constexpr double infinite = std::numeric_limits<double>::infinity();
    // Index n means "no row" or "no column".
    std::vector<double> row(n + 1, 0.0);
    std::vector<double> column(n + 1, 0.0);
    std::vector<std::size_t> row_of(n + 1, n);
    std::vector<std::size_t> before(n + 1, n);
    for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> least(n + 1, infinite);
        std::vector<char> used(n + 1, 0);
        std::size_t at = n;
        row_of[n] = i;
        do {
            used[at] = 1;
            double delta = infinite;
            std::size_t next = n;
            for (std::size_t j = 0; j < n; ++j) {
                if (used[j] != 0) continue;
                const double reduced = cost(row_of[at], j) - row[row_of[at]] - column[j];
                if (reduced < least[j]) {
                    least[j] = reduced;
                    before[j] = at;
                }
                if (least[j] < delta) {
                    delta = least[j];
                    next = j;
                }
            }
            for (std::size_t j = 0; j <= n; ++j)
                if (used[j] != 0) {
                    row[row_of[j]] += delta;
                    column[j] -= delta;
                } else {
                    least[j] -= delta;
                }
            at = next;
        } while (row_of[at] != n);
        for (; at != n; at = before[at])
            row_of[at] = row_of[before[at]];
        row_of[n] = n;
    }
    assignment_prices prices{std::vector<double>(of.rows), std::vector<double>(of.columns)};
    const double lowest = -*std::max_element(column.begin(), column.begin() + static_cast<std::ptrdiff_t>(n));
    for (std::size_t j = 0; j < of.columns; ++j)
        prices.of_column[j] = std::max(0.0, -column[j] - lowest);
    fit_rows(of, prices); // makes the prices valid in spite of rounding
    fit_columns(of, prices);
    return prices;
}

} // namespace optpipe::detail
