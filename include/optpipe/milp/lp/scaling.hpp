#pragma once

#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

/// The scaled matrix has entries row[i] · a(i, j) · column[j]. All factors are powers of two, so that scaling rounds
/// nothing.
struct scale_factors {
    std::vector<double> row;
    std::vector<double> column;
};

namespace detail {

/// Sets each major's factor to 1 / sqrt(least · largest) of its entries, scaled by their minors.
inline void balance(const compressed& a, std::vector<double>& majors, const std::vector<double>& minors) {
    for (int j = 0; j < a.majors(); ++j) {
        double least = std::numeric_limits<double>::infinity();
        double most = 0.0;
        for (int k = a.begin(j); k < a.end(j); ++k) {
            const double v = std::abs(a.value[at(k)]) * minors[at(a.index[at(k)])];
            least = std::min(least, v);
            most = std::max(most, v);
        }
        if (most > 0.0) majors[at(j)] = 1.0 / std::sqrt(least * most);
    }
}

/// Whether all entries are of similar size, so that scaling would not help.
inline bool is_well_scaled(const compressed& a) {
    return std::all_of(a.value.begin(), a.value.end(), [](double v) {
        return std::abs(v) >= parameters.well_scaled_low && std::abs(v) <= parameters.well_scaled_high;
    });
}

} // namespace detail

/// Geometric scaling of columns and rows alternately, rounded to powers of two.
[[nodiscard]] inline scale_factors geometric_scaling(const compressed& columns, const compressed& rows) {
    scale_factors s{std::vector(at(rows.majors()), 1.0), std::vector(at(columns.majors()), 1.0)};
    if (detail::is_well_scaled(columns)) return s;
    constexpr int passes = 4;
    for (int pass = 0; pass < passes; ++pass) {
        detail::balance(rows, s.row, s.column);
        detail::balance(columns, s.column, s.row);
    }
    for (auto* factors : {&s.row, &s.column})
        for (double& f : *factors)
            f = std::exp2(std::round(std::log2(f)));
    return s;
}

} // namespace optpipe::milp::lp
