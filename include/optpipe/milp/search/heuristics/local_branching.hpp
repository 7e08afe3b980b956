#pragma once

#include "optpipe/milp/search/heuristics/sub_model.hpp"

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Local branching (Fischetti and Lodi, 2003) as a heuristic. Searches the points that differ from the incumbent in at
/// most `radius` binaries. Empty without binaries, or if no point is found.
[[nodiscard]] inline std::optional<std::vector<double>> local_branching(const context& c, const domains& d,
                                                                        std::span<const double> incumbent,
                                                                        std::size_t radius, sub_effort most,
                                                                        double cutoff) {
    const auto& p = *c.instance;
    auto m = model_of(p, d);
    std::vector<term> distance;
    double constant = 0.0;
    for (std::size_t j = 0; j < p.columns(); ++j) {
        if (!p.is_binary(j)) continue;
        const bool one = incumbent[j] > 0.5;
        distance.push_back({variable{j}, one ? -1.0 : 1.0});
        constant += one ? 1.0 : 0.0;
    }
    if (distance.empty()) return std::nullopt;
    m.add_row(-infinity, distance, static_cast<double>(radius) - constant);
    return c.solve_sub(m, most, cutoff);
}

} // namespace optpipe::milp::search
