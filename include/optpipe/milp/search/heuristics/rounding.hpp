#pragma once

#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Numbers of rows that each column can violate by increasing, and by decreasing.
struct locks {
    std::vector<std::uint32_t> up, down;

    explicit locks(const problem& p) : up(p.columns(), 0), down(p.columns(), 0) {
        for (std::size_t i = 0; i < p.rows(); ++i)
            for (const auto& e : p.row_entries(i)) {
                const bool rises = e.coefficient > 0.0;
                if (p.row_upper[i] < infinity) ++(rises ? up : down)[e.column];
                if (p.row_lower[i] > -infinity) ++(rises ? down : up)[e.column];
            }
    }
};

/// Rounds each fractional integer variable in a direction that no row blocks. If rows block both directions, rounds to
/// the nearer integer. Empty if the rounded point violates a row.
[[nodiscard]] inline std::optional<std::vector<double>> round_by_locks(const problem& p, const locks& l,
                                                                       std::span<const double> point) {
    std::vector<double> values(point.begin(), point.end());
    for (std::size_t j = 0; j < p.columns(); ++j) {
        if (!p.is_integer(j)) continue;
        if (std::abs(values[j] - std::round(values[j])) <= p.tolerances.integrality || (l.up[j] > 0 && l.down[j] > 0))
            values[j] = std::round(values[j]);
        else
            values[j] = l.up[j] == 0 ? std::ceil(values[j]) : std::floor(values[j]);
    }
    for (std::size_t i = 0; i < p.rows(); ++i) {
        const double sum = p.activity(i, values);
        if (sum < p.row_lower[i] - p.tolerances.slack(p.row_lower[i]) ||
            sum > p.row_upper[i] + p.tolerances.slack(p.row_upper[i]))
            return std::nullopt;
    }
    return values;
}

} // namespace optpipe::milp::search
