#pragma once

#include "optpipe/pipeline/graph.hpp"
#include "optpipe/schedule/construct/building_block.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// Whether no two operations of a rank ever share a cell.
template <pipeline_graph Graph>
[[nodiscard]] constexpr bool is_free_of_collisions(const Graph& g, const building_block<Graph>& block) {
    std::vector<unsigned char> taken(g.ranks() * block.period, 0);
    const auto take = [&](rank r, std::size_t cell) {
        auto& place = taken[r.position() * block.period + cell % block.period];
        return ++place == 1;
    };
    for (const stage s : g.all_stages())
        for (std::size_t m = 0; m < block.group; ++m) {
            const std::size_t cells[] = {block.cells[s].forward, block.cells[s].backward_input,
                                         block.cells[s].backward_weight};
            for (const auto cell : cells)
                if (!take(g.rank_of(s), cell + block.shift(m))) return false;
        }
    return true;
}

} // namespace optpipe
