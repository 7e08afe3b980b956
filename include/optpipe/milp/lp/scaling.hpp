#pragma once

#include "optpipe/milp/lp/compressed.hpp"
#include "optpipe/milp/lp/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::milp::lp {

/// The scaled matrix has entries row[i] · a(i, j) · column[j]. Factors are powers of two, so scaling rounds nothing.
struct scale_factors {
    std::vector<double> row;
    std::vector<double> column;
};

namespace detail {

/// Returns 1 / sqrt(least · largest) over the magnitudes in column or row `major`. Entries are first multiplied by
/// their factors in `minors`. Returns `otherwise` if there are no entries.
inline double balancing_factor(const compressed& a, int major, const std::vector<double>& minors, double otherwise) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0.0;
    for (int k = a.begin(major); k < a.end(major); ++k) {
        const double v = std::abs(a.value[at(k)]) * minors[at(a.index[at(k)])];
        least = std::min(least, v);
        most = std::max(most, v);
    }
    return most > 0.0 ? 1.0 / std::sqrt(least * most) : otherwise;
}

inline void balance(const compressed& a, std::vector<double>& majors, const std::vector<double>& minors) {
    for (int j = 0; j < a.majors(); ++j)
        majors[at(j)] = balancing_factor(a, j, minors, majors[at(j)]);
}

[[nodiscard]] inline double nearest_power_of_two(double v) { return std::exp2(std::round(std::log2(v))); }

/// Whether all entries are of similar size.
inline bool is_well_scaled(const compressed& a) {
    return std::all_of(a.value.begin(), a.value.end(), [](double v) {
        return std::abs(v) >= parameters.well_scaled_low && std::abs(v) <= parameters.well_scaled_high;
    });
}

} // namespace detail

/// Scales columns and rows alternately by geometric means. The factors are rounded to powers of two.
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
            f = detail::nearest_power_of_two(f);
    return s;
}

/// The scale factor of a new column. The rows keep their factors.
[[nodiscard]] inline double scale_of_column(const compressed& columns, int j, const std::vector<double>& rows) {
    return detail::nearest_power_of_two(detail::balancing_factor(columns, j, rows, 1.0));
}

} // namespace optpipe::milp::lp
