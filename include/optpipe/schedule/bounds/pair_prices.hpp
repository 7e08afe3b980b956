#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/assignment_prices.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The cells whose forwards and backwards a rank runs. If all microbatches are equal, one cell of each stage represents
/// all microbatches.
struct pairable_cells {
    struct cell {
        optpipe::stage stage{};
        optpipe::microbatch microbatch{};
    };
    std::vector<cell> forwards{};
    std::vector<cell> backwards{};
    /// The number of microbatches that each cell represents.
    double count = 1.0;
};

[[nodiscard]] inline pairable_cells pairable_cells_of(const problem& p, rank r) {
    pairable_cells found;
    const bool are_equal = p.microbatches.are_equal();
    if (are_equal) found.count = static_cast<double>(p.graph.microbatches());
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        for (const microbatch m : p.graph.all_microbatches()) {
            if (are_equal && m.position() > 0) break;
            found.forwards.push_back({s, m});
            if (p.costs[s].gradients != gradient_kind::none) found.backwards.push_back({s, m});
        }
    }
    return found;
}

/// The most time saved by a pair of this forward with this backward, as a B or an I. The recomputation inside a
/// backward isn't shortened.
[[nodiscard]] inline duration saved_by_pair(const problem& p, const pairable_cells::cell& f,
                                            const pairable_cells::cell& b) {
    duration most{};
    for (const auto kind : {overlap_kind::backward, overlap_kind::backward_input}) {
        const auto* of = p.overlaps.find(f.stage, b.stage, kind);
        if (!of) continue;
        const auto forward = p.cost(f.stage, f.microbatch).forward;
        const auto backward = length_of(p.cost(b.stage, b.microbatch), kind);
        const auto usual = p.costs[f.stage].forward + length_of(p.costs[b.stage], kind);
        const auto together = ((forward + backward) / usual) * of->duration;
        most = std::max(most, forward + backward - std::max({forward, backward, together}));
    }
    return most;
}

/// Prices of the forwards (rows) and backwards (columns) of a rank. A pair saves at most the sum of the prices of its
/// two operations. Each element of the result has a price for every operation. No element is best for all bounds,
/// because `pair_bound` adds back the prices of unpaired operations.
[[nodiscard]] inline std::vector<assignment_prices> prices_of_pairs(const problem& p, const pairable_cells& cells) {
    gain_table gains{cells.forwards.size(), cells.backwards.size(), {}};
    gains.gain.reserve(gains.rows * gains.columns);
    for (const auto& f : cells.forwards)
        for (const auto& b : cells.backwards)
            gains.gain.push_back(saved_by_pair(p, f, b).value());
    assignment_prices all_on_rows{std::vector<double>(gains.rows), std::vector<double>(gains.columns)};
    auto all_on_columns = all_on_rows;
    fit_rows(gains, all_on_rows);
    fit_columns(gains, all_on_columns);
    std::vector<assignment_prices> found{all_on_rows, all_on_columns};
    auto half = all_on_rows;
    for (auto& price : half.of_row)
        price *= 0.5;
    half.of_column = all_on_columns.of_column;
    for (auto& price : half.of_column)
        price *= 0.5;
    found.push_back(half);
    // The largest number of rows or columns for which exact prices are computed. Exact prices take up to a tenth of a
    // second. Not tuned.
    constexpr std::size_t most_exact = 256;
    if (std::max(gains.rows, gains.columns) > most_exact || gains.gain.empty()) return found;
    const auto exact = least_prices(gains);
    found.push_back(exact);
    // Makes two more sets of prices from the exact prices. The first set lowers all column prices by the least column
    // price, and refits the row prices. In the second set, rows and columns are exchanged.
    for (const bool to_rows : {true, false}) {
        auto moved = exact;
        auto& from = to_rows ? moved.of_column : moved.of_row;
        const double common = *std::min_element(from.begin(), from.end());
        for (auto& price : from)
            price -= common;
        if (to_rows)
            fit_rows(gains, moved);
        else
            fit_columns(gains, moved);
        found.push_back(std::move(moved));
    }
    return found;
}

} // namespace optpipe::detail
