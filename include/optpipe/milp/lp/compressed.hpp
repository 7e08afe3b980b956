#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/lp/linear_program.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

[[nodiscard]] constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A sparse matrix, stored by columns or by rows. Each column or row ("major") is a list of (index, value) pairs.
struct compressed {
    std::vector<int> start;
    std::vector<int> index;
    std::vector<double> value;

    [[nodiscard]] int majors() const { return static_cast<int>(start.size()) - 1; }
    [[nodiscard]] int begin(int major) const { return start[at(major)]; }
    [[nodiscard]] int end(int major) const { return start[at(major) + 1]; }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(start, index, value); }
};

/// Converts a matrix, and leaves out explicit zeros.
[[nodiscard]] inline compressed compress(const Eigen::SparseMatrix<double>& matrix) {
    compressed c;
    c.start.reserve(static_cast<std::size_t>(matrix.outerSize()) + 1);
    c.start.push_back(0);
    for (int j = 0; j < matrix.outerSize(); ++j) {
        for (Eigen::SparseMatrix<double>::InnerIterator e(matrix, j); e; ++e)
            if (e.value() != 0.0) {
                c.index.push_back(static_cast<int>(e.row()));
                c.value.push_back(e.value());
            }
        c.start.push_back(static_cast<int>(c.index.size()));
    }
    return c;
}

[[nodiscard]] inline compressed transpose(const compressed& a, int minors) {
    compressed t;
    t.start.assign(at(minors) + 1, 0);
    for (const int i : a.index)
        ++t.start[at(i) + 1];
    for (int i = 0; i < minors; ++i)
        t.start[at(i) + 1] += t.start[at(i)];
    t.index.resize(a.index.size());
    t.value.resize(a.value.size());
    auto next = t.start;
    for (int j = 0; j < a.majors(); ++j)
        for (int k = a.begin(j); k < a.end(j); ++k) {
            const auto place = at(next[at(a.index[at(k)])]++);
            t.index[place] = j;
            t.value[place] = a.value[at(k)];
        }
    return t;
}

} // namespace optpipe::milp::lp
