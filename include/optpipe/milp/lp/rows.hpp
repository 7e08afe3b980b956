#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/lp/linear_program.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace optpipe::milp::lp {

using triplets = std::vector<Eigen::Triplet<double>>;

inline void rebuild_matrix(linear_program& program, const triplets& entries) {
    program.matrix.resize(static_cast<Eigen::Index>(program.rows()), static_cast<Eigen::Index>(program.columns()));
    program.matrix.setFromTriplets(entries.begin(), entries.end());
}

/// The entries of the rows that stay. `place` has each row's new index, negative for rows left out.
[[nodiscard]] inline triplets entries_of(const linear_program& program, const std::vector<int>& place) {
    triplets entries;
    entries.reserve(static_cast<std::size_t>(program.matrix.nonZeros()));
    for (int j = 0; j < program.matrix.outerSize(); ++j)
        for (Eigen::SparseMatrix<double>::InnerIterator e(program.matrix, j); e; ++e)
            if (const int i = place[static_cast<std::size_t>(e.row())]; i >= 0) entries.emplace_back(i, j, e.value());
    return entries;
}

/// Appends rows. Terms of the same column are summed.
inline void append_rows(linear_program& program, std::span<const cut_row> rows) {
    std::vector<int> place(program.rows());
    for (std::size_t i = 0; i < place.size(); ++i)
        place[i] = static_cast<int>(i);
    auto entries = entries_of(program, place);
    for (const auto& r : rows) {
        for (const auto& [column, coefficient] : r.terms) {
            OPTPIPE_EXPECT(column < program.columns(), "a new row has a column that the program doesn't have");
            entries.emplace_back(static_cast<int>(program.rows()), static_cast<int>(column), coefficient);
        }
        program.row_lower.push_back(r.lower);
        program.row_upper.push_back(r.upper);
    }
    rebuild_matrix(program, entries);
}

/// Keeps the rows with a nonnegative `place`, in the same order.
inline void keep_rows(linear_program& program, const std::vector<int>& place) {
    const auto entries = entries_of(program, place);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < place.size(); ++i) {
        if (place[i] < 0) continue;
        program.row_lower[kept] = program.row_lower[i];
        program.row_upper[kept] = program.row_upper[i];
        ++kept;
    }
    program.row_lower.resize(kept);
    program.row_upper.resize(kept);
    rebuild_matrix(program, entries);
}

} // namespace optpipe::milp::lp
