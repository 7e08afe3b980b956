#pragma once

#include "optpipe/milp/bytes.hpp"

#include <Eigen/SparseCore>

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// Minimizes cost'x subject to row_lower <= matrix x <= row_upper and column_lower <= x <= column_upper. Bounds may be
/// infinite. `matrix` has as many rows as `row_lower`, and as many columns as `cost`.
struct linear_program {
    Eigen::SparseMatrix<double> matrix;
    std::vector<double> cost;
    std::vector<double> column_lower;
    std::vector<double> column_upper;
    std::vector<double> row_lower;
    std::vector<double> row_upper;

    [[nodiscard]] std::size_t rows() const { return row_lower.size(); }
    [[nodiscard]] std::size_t columns() const { return cost.size(); }
    /// Whether a lower bound is above its upper bound.
    [[nodiscard]] bool has_crossed_bounds() const {
        for (std::size_t j = 0; j < columns(); ++j)
            if (column_lower[j] > column_upper[j]) return true;
        for (std::size_t i = 0; i < rows(); ++i)
            if (row_lower[i] > row_upper[i]) return true;
        return false;
    }
    [[nodiscard]] std::size_t bytes() const {
        const auto entries = static_cast<std::size_t>(matrix.nonZeros());
        return entries * (sizeof(double) + sizeof(int)) +
               static_cast<std::size_t>(matrix.outerSize() + 1) * sizeof(int) +
               bytes_of(cost, column_lower, column_upper, row_lower, row_upper);
    }
};

/// A row to be added to a linear program: lower <= sum of coefficient · column <= upper.
struct cut_row {
    std::vector<std::pair<std::size_t, double>> terms;
    double lower;
    double upper;
};

/// A column to be added to a linear program, with its coefficients by row.
struct new_column {
    double cost;
    std::vector<std::pair<std::size_t, double>> terms;
    double lower = 0.0;
    double upper = std::numeric_limits<double>::infinity();
};

} // namespace optpipe::milp
