#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Counts the memory of one rank in cells of equal size. Stashes that fit in memory also fit in the cells: sizes are
/// rounded down, the limit isn't. The grid is exact if all sizes and the limit are multiples of a common size.
class memory_grid {
public:
    memory_grid() = default;
    memory_grid(const std::vector<double>& sizes, double limit, double slack) {
        if (limit + slack <= 0.0) return; // all sizes are zero
        for (std::size_t n = 1; n <= most_cells && limit > 0.0; ++n)
            if (divides(sizes, limit / static_cast<double>(n)) && slack < 0.5 * limit / static_cast<double>(n)) {
                cells_ = n;
                cell_ = limit / static_cast<double>(n);
                return;
            }
        cells_ = most_cells;
        cell_ = (limit + slack) / static_cast<double>(most_cells);
    }
    [[nodiscard]] std::size_t cells() const { return cells_; }
    /// The size in cells, rounded down. If the size exceeds the memory, the result is more than `cells()`.
    [[nodiscard]] std::size_t cells_of(double size) const {
        const double exact = size / cell_ + nearly;
        return exact >= static_cast<double>(cells_ + 1) ? cells_ + 1 : static_cast<std::size_t>(exact);
    }

private:
    /// The number of cells if the sizes have no common divisor. With a coarser grid, the bound is weaker. With a finer
    /// grid, the computation takes longer. Not tuned.
    static constexpr std::size_t most_cells = 1500;
    /// Tolerance of sizes, in cells. The tolerances of all fitting stashes add up to far less than one cell.
    static constexpr double nearly = 1e-7;

    static bool divides(const std::vector<double>& sizes, double cell) {
        return std::all_of(sizes.begin(), sizes.end(),
                           [&](double s) { return std::abs(s / cell - std::round(s / cell)) < 0.5 * nearly; });
    }

    std::size_t cells_ = 0;
    double cell_ = 1.0;
};

/// Finds the most valuable multiset of stashes for every number of cells (an unbounded knapsack).
class memory_packing {
public:
    struct item {
        std::size_t id;
        std::size_t cells;
        double value;
    };

    /// Contract: every item has at least one cell.
    void fill(const std::vector<item>& items, std::size_t cells) {
        items_ = &items;
        value_.assign(cells + 1, 0.0);
        last_.assign(cells + 1, none);
        for (std::size_t c = 1; c <= cells; ++c) {
            value_[c] = value_[c - 1];
            for (std::size_t i = 0; i < items.size(); ++i) {
                if (items[i].cells > c) continue;
                if (const double v = value_[c - items[i].cells] + items[i].value; v > value_[c]) {
                    value_[c] = v;
                    last_[c] = i;
                }
            }
        }
    }
    [[nodiscard]] double value(std::size_t cells) const { return value_[cells]; }
    /// Visits the items of the best packing, once per copy.
    template <class Visit> void for_each_packed(std::size_t cells, Visit visit) const {
        while (cells > 0) {
            if (last_[cells] == none) {
                --cells;
                continue;
            }
            const auto& packed = (*items_)[last_[cells]];
            visit(packed.id);
            cells -= packed.cells;
        }
    }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    const std::vector<item>* items_ = nullptr;
    std::vector<double> value_{};
    std::vector<std::size_t> last_{};
};

} // namespace optpipe::detail
