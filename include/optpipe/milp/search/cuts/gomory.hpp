#pragma once

#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/cuts/rounding.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Gomory's mixed-integer cuts (1960). The cuts are made from the tableau rows of integer variables with fractional
/// values. The most fractional variables come first.
inline void separate_gomory(const problem& p, relaxation& lp, mixed_integer_rounding& rounding, cut_pool& pool) {
    constexpr cut_parameters with{};
    const auto last = rounding.effort() + with.gomory_effort;
    const std::vector<double> point(lp.point().begin(), lp.point().end());
    std::vector<std::pair<double, std::size_t>> rows;
    for (std::size_t j = 0; j < p.columns(); ++j) {
        const double distance = std::abs(point[j] - std::round(point[j]));
        if (p.is_integer(j) && distance > p.tolerances.integrality && lp.solver().is_basic(j))
            rows.emplace_back(-distance, j);
    }
    std::sort(rows.begin(), rows.end());
    rows.resize(std::min(rows.size(), with.most_tableau_rows));
    for (const auto& [unused, j] : rows) {
        if (rounding.effort() > last) return;
        const auto row = lp.solver().tableau_row(j);
        if (!row) continue; // the basis was repaired
        const auto& slacks = row->slacks;
        std::vector<row_multiplier> multipliers;
        for (std::size_t i = 0; i < slacks.size(); ++i)
            if (std::abs(slacks[i]) >= with.least_multiplier)
                multipliers.push_back({static_cast<std::uint32_t>(i), slacks[i]});
        if (auto found = rounding.separate(multipliers, point)) pool.add(std::move(*found));
    }
}

} // namespace optpipe::milp::search
