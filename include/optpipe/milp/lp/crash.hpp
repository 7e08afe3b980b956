#pragma once

#include "optpipe/milp/lp/basis.hpp"
#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/linear_program.hpp"
#include "optpipe/milp/lp/parameters.hpp"
#include "optpipe/milp/lp/tableau.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::milp::lp {

/// Replaces slacks of equality rows by columns that are free or have a wide range. Slacks of equality rows are fixed,
/// and must leave the basis anyway. Columns without entries in the rows of earlier columns keep the basis triangular.
inline void triangular_crash(const linear_program& program, tableau& t) {
    const auto& a = t.program.by_column;
    std::vector<int> order(program.columns());
    for (std::size_t j = 0; j < order.size(); ++j)
        order[j] = static_cast<int>(j);
    const auto range = [&](int j) { return program.column_upper[at(j)] - program.column_lower[at(j)]; };
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
        if (t.is_free(x) != t.is_free(y)) return t.is_free(x);
        if (range(x) != range(y)) return range(x) > range(y);
        return a.end(x) - a.begin(x) < a.end(y) - a.begin(y);
    });
    std::vector<char> taken(program.rows(), 0);
    for (const int j : order) {
        if (range(j) == 0.0) continue;
        double largest = 0.0;
        for (int k = a.begin(j); k < a.end(j); ++k)
            largest = std::max(largest, std::abs(a.value[at(k)]));
        int best = -1;
        bool reaches = false;
        for (int k = a.begin(j); k < a.end(j); ++k) {
            const auto i = at(a.index[at(k)]);
            reaches = reaches || taken[i] != 0;
            const bool equality = program.row_lower[i] == program.row_upper[i];
            if (equality && std::abs(a.value[at(k)]) >= parameters.stable_share * largest) best = static_cast<int>(i);
        }
        if (reaches || best < 0) continue;
        for (int k = a.begin(j); k < a.end(j); ++k)
            taken[at(a.index[at(k)])] = 1;
        t.status[at(j)] = basis_status::basic;
        t.status[at(t.program.columns + best)] = basis_status::free_at_zero;
    }
}

} // namespace optpipe::milp::lp
