#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/milp/lp/linear_program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

/// Small linear programs of every kind: degenerate, infeasible, unbounded, with free and fixed columns, ranged and free
/// rows; some of them are badly scaled.
namespace random_program {

using optpipe::random_numbers;
using optpipe::milp::linear_program;

struct interval {
    double lower;
    double upper;
};

inline double small_integer(random_numbers& random) { return static_cast<double>(random.below(21)) - 10.0; }

inline interval bounds(random_numbers& random) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double low = small_integer(random);
    const double width = static_cast<double>(random.below(12));
    switch (random.below(8)) {
    case 0: return {-infinity, infinity};
    case 1: return {-infinity, low};
    case 2: return {low, low};
    case 3:
    case 4: return {0.0, infinity};
    default: return {low, low + width};
    }
}

/// All 1, or from 1e-`decades` to 1e`decades`.
inline std::vector<double> factors(random_numbers& random, std::size_t count, std::size_t decades) {
    std::vector<double> f(count, 1.0);
    for (double& v : f)
        v = std::pow(10.0, static_cast<double>(random.below(2 * decades + 1)) - static_cast<double>(decades));
    return f;
}

inline linear_program make(random_numbers& random, std::size_t most_rows, std::size_t most_columns) {
    const auto rows = random.below(most_rows + 1);
    const auto columns = random.below(most_columns + 1);
    const auto percent = 20 + random.below(70);
    const std::size_t decades = random.chance(15) ? 4 : 0;
    const bool feasible_at_zero = random.chance(40);
    const auto row_factor = factors(random, rows, decades);
    const auto column_factor = factors(random, columns, decades);
    std::vector<Eigen::Triplet<double>> entries;
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j)
            if (random.chance(percent)) {
                const double v = random.chance(50) ? (random.chance(50) ? 1.0 : -1.0) : small_integer(random);
                if (v != 0.0)
                    entries.emplace_back(static_cast<int>(i), static_cast<int>(j),
                                         v * row_factor[i] * column_factor[j]);
            }
    linear_program p;
    const auto include_zero = [&](interval b) {
        if (!feasible_at_zero) return b;
        return interval{std::min(b.lower, 0.0), std::max(b.upper, 0.0)};
    };
    for (std::size_t j = 0; j < columns; ++j) {
        const auto b = include_zero(bounds(random));
        p.column_lower.push_back(b.lower / column_factor[j]);
        p.column_upper.push_back(b.upper / column_factor[j]);
        p.cost.push_back(random.chance(30) ? 0.0 : small_integer(random) * column_factor[j]);
    }
    for (std::size_t i = 0; i < rows; ++i) {
        const auto b = include_zero(bounds(random));
        p.row_lower.push_back(b.lower * row_factor[i]);
        p.row_upper.push_back(b.upper * row_factor[i]);
    }
    p.matrix.resize(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(columns));
    p.matrix.setFromTriplets(entries.begin(), entries.end());
    return p;
}

} // namespace random_program
