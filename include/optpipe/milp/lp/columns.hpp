#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/lp/linear_program.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace optpipe::milp::lp {

/// Appends columns. Terms of the same row are summed.
inline void append_columns(linear_program& program, std::span<const new_column> columns) {
    std::vector<Eigen::Triplet<double>> entries;
    for (std::size_t j = 0; j < columns.size(); ++j) {
        for (const auto& [row, coefficient] : columns[j].terms) {
            OPTPIPE_EXPECT(row < program.rows(), "a new column has a row that the program doesn't have");
            entries.emplace_back(static_cast<int>(row), static_cast<int>(j), coefficient);
        }
        program.cost.push_back(columns[j].cost);
        program.column_lower.push_back(columns[j].lower);
        program.column_upper.push_back(columns[j].upper);
    }
    const auto added = static_cast<Eigen::Index>(columns.size());
    Eigen::SparseMatrix<double> block{program.matrix.rows(), added};
    block.setFromTriplets(entries.begin(), entries.end());
    program.matrix.conservativeResize(program.matrix.rows(), program.matrix.cols() + added);
    program.matrix.rightCols(added) = block;
}

} // namespace optpipe::milp::lp
