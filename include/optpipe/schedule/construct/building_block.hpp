#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The cells of one microbatch's operations on one stage; each operation takes one cell of the grid.
struct block_cells {
    std::size_t forward = 0;
    std::size_t backward_input = 0;
    std::size_t backward_weight = 0;
    friend constexpr bool operator==(const block_cells&, const block_cells&) = default;
};

/// The passes of a group of microbatches, repeated every `period` cells (Controllable Memory, Qi et al., 2024, section
/// 3). In a group, consecutive microbatches are `stride` cells apart.
template <pipeline_graph Graph> struct building_block {
    /// The cells of the first microbatch.
    per_stage<block_cells, Graph::stage_extent> cells{};
    std::size_t period = 1;
    std::size_t group = 1;
    std::size_t stride = 0;

    [[nodiscard]] constexpr std::size_t shift(std::size_t m) const { return m / group * period + m % group * stride; }
};

/// Puts every W on the first cell after its I that no repetition uses. The weight gradients are placed in the order of
/// their input gradients. Returns false if a W finds no free cell. A free cell is certain with one microbatch per group
/// and enough cells. Contract: F and I don't collide.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool place_weight_gradients(const Graph& g, building_block<Graph>& block) {
    std::vector<unsigned char> taken(g.ranks() * block.period, 0);
    // Whether the m-th microbatch of a group takes the cell.
    const auto place = [&](rank r, std::size_t cell, std::size_t m) -> unsigned char& {
        return taken[r.position() * block.period + (cell + block.shift(m)) % block.period];
    };
    const auto take = [&](rank r, std::size_t cell) {
        for (std::size_t m = 0; m < block.group; ++m)
            place(r, cell, m) = 1;
    };
    const auto is_taken = [&](rank r, std::size_t cell) {
        for (std::size_t m = 0; m < block.group; ++m)
            if (place(r, cell, m) != 0) return true;
        return false;
    };
    std::vector<stage> by_gradient;
    for (const stage s : g.all_stages()) {
        take(g.rank_of(s), block.cells[s].forward);
        take(g.rank_of(s), block.cells[s].backward_input);
        by_gradient.push_back(s);
    }
    std::sort(by_gradient.begin(), by_gradient.end(),
              [&](stage a, stage b) { return block.cells[a].backward_input < block.cells[b].backward_input; });
    for (const stage s : by_gradient) {
        auto cell = block.cells[s].backward_input + 1;
        for (const auto last = cell + block.period; is_taken(g.rank_of(s), cell); ++cell)
            if (cell == last) return false;
        take(g.rank_of(s), cell);
        block.cells[s].backward_weight = cell;
    }
    return true;
}

/// The peak of each rank's device memory when the block is repeated without end. Any number of repetitions fits in this
/// memory. O(S · group · period).
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_rank<memory_size, Graph::rank_extent>
memory_of_repetition(const basic_problem<Graph>& p, const building_block<Graph>& block) {
    per_rank<memory_size, Graph::rank_extent> peaks(p.graph.ranks());
    per_rank<std::vector<memory_size>> level(p.graph.ranks(), std::vector<memory_size>(block.period));
    // Adds `amount` on the cells [from, to) of every repetition.
    const auto hold = [&](std::vector<memory_size>& levels, std::size_t from, std::size_t to, memory_size amount) {
        const auto rounds = static_cast<double>((to - from) / block.period);
        for (auto& one : levels)
            one += rounds * amount;
        for (auto cell = to - (to - from) % block.period; cell < to; ++cell)
            levels[cell % block.period] += amount;
    };
    for (const stage s : p.graph.all_stages()) {
        const auto& at = block.cells[s];
        const auto& c = p.costs[s];
        // If the weight stash exceeds the activation, the memory grows by the excess when I starts.
        const auto until_input = at.backward_input + (c.weight_stash > c.activation ? 0 : 1);
        for (std::size_t m = 0; m < block.group; ++m) {
            auto& own = level[p.rank_of(s)];
            hold(own, at.forward + block.shift(m), until_input + block.shift(m), c.activation);
            hold(own, until_input + block.shift(m), at.backward_weight + 1 + block.shift(m), c.weight_stash);
        }
    }
    for (const rank r : p.graph.all_ranks())
        peaks[r] = *std::max_element(level[r].begin(), level[r].end());
    return peaks;
}

struct grid_operation {
    operation op{};
    std::size_t cell = 0;
};
/// The operations of each rank with their cells, sorted by cell.
using operation_grid = per_rank<std::vector<grid_operation>>;

namespace detail {

OPTPIPE_CONSTEXPR void sort_by_cell(operation_grid& grid) {
    for (auto& own : grid)
        std::sort(own.begin(), own.end(),
                  [](const grid_operation& a, const grid_operation& b) { return a.cell < b.cell; });
}

} // namespace detail

/// The block, repeated for the first `count` microbatches.
template <pipeline_graph Graph>
[[nodiscard]] constexpr operation_grid repeat(const Graph& g, const building_block<Graph>& block, std::size_t count) {
    operation_grid grid(g.ranks());
    for (const stage s : g.all_stages()) {
        auto& own = grid[g.rank_of(s)];
        const auto& at = block.cells[s];
        for (std::size_t i = 0; i < count; ++i) {
            const microbatch m{i};
            own.push_back({forward(s, m), at.forward + block.shift(i)});
            own.push_back({backward_input(s, m), at.backward_input + block.shift(i)});
            own.push_back({backward_weight(s, m), at.backward_weight + block.shift(i)});
        }
    }
    detail::sort_by_cell(grid);
    return grid;
}
template <pipeline_graph Graph>
[[nodiscard]] constexpr operation_grid repeat(const Graph& g, const building_block<Graph>& block) {
    return repeat(g, block, g.microbatches());
}

/// The order of each rank, without the cells.
[[nodiscard]] OPTPIPE_CONSTEXPR compute_lanes lanes_of(const operation_grid& grid) {
    compute_lanes lanes(grid.size());
    for (const rank r : grid.indices())
        for (const auto& one : grid[r])
            lanes[r].push_back(one.op);
    return lanes;
}

/// Replaces I and W by B, for problems whose backwards can't be split. The B takes the position of the I.
OPTPIPE_CONSTEXPR void fuse_backwards(compute_lanes& lanes) {
    for (auto& lane : lanes) {
        std::erase_if(lane, [](const operation& op) { return op.kind == operation_kind::backward_weight; });
        for (auto& op : lane)
            if (op.kind == operation_kind::backward_input) op = backward(op.stage, op.microbatch);
    }
}

} // namespace optpipe
