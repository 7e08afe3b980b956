#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/planner/modulo/modulo_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// `modulo_search` as a strategy. The strategy applies to steps that are longer than prologue and epilogue.
struct modulo_strategy {
    static constexpr std::string_view name = "modulo";
    /// Number of stage placements of the first call, at about a quarter of a microsecond each.
    static constexpr std::size_t first_effort = 50'000;
    /// The share is small: the strategy finds its periods in few calls. Not tuned.
    static constexpr double share = 0.5;
    /// Time to unroll a pattern, as a number of passes through the problem.
    static constexpr double least_passes = 5.0;
    /// Number of stage placements that take about as long as one move of local search. Not tuned.
    static constexpr std::size_t placements_per_move = 10;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.applicable = p.graph.microbatches() >= 2 * p.graph.ranks(),
                .knows_storage_options = true,
                .first_effort = first_effort,
                .share = share,
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        const auto moves = options.effort / placements_per_move;
        const auto seed = options.seed;
        modulo_search(state, {.seed = seed, .effort = options.effort, .improve = [moves, seed](search_state& shorter) {
                                  local_search(shorter, {.seed = seed, .moves = moves});
                              }});
    }
};
static_assert(check_search_strategy<modulo_strategy>());

} // namespace optpipe
