#pragma once

#include "optpipe/milp/search/heuristics/sub_model.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Relaxation induced neighbourhood search (Danna, Rothberg and Le Pape, 2005). Fixes integer variables with equal
/// values in incumbent and relaxation, and solves the rest. Empty if too few variables can be fixed.
[[nodiscard]] inline std::optional<std::vector<double>> rins(const context& c, const domains& d,
                                                             std::span<const double> incumbent,
                                                             std::span<const double> point, sub_effort most,
                                                             double cutoff) {
    // Not tuned. With fewer fixed columns, the problem stays nearly as hard.
    constexpr std::size_t least_fixed_percent = 40;
    const auto& p = *c.instance;
    auto m = model_of(p, d);
    std::size_t fixed = 0, integers = 0;
    for (std::size_t j = 0; j < p.columns(); ++j) {
        if (!p.is_integer(j)) continue;
        ++integers;
        const double value = std::round(incumbent[j]);
        if (std::abs(point[j] - value) > p.tolerances.integrality) continue;
        m.set_bounds(variable{j}, value, value);
        ++fixed;
    }
    if (fixed * 100 < integers * least_fixed_percent) return std::nullopt;
    return c.solve_sub(m, most, cutoff);
}

} // namespace optpipe::milp::search
