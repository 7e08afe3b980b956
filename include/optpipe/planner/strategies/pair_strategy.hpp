#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/pair_search/pair_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// `pair_search` as a strategy. The strategy applies to problems with pairs in which each rank frees its own memory.
struct pair_strategy {
    static constexpr std::string_view name = "pair-search";
    /// Number of moves of the first call. With hundreds of operations, the call takes some hundredths of a second.
    static constexpr std::size_t first_effort = 20'000;
    /// Time to build one schedule, to merge its pairs, and to time it with one storage option. Measured in passes
    /// through the problem.
    static constexpr double least_passes = 10.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.applicable = !p.overlaps.empty() && frees_own_memory(p),
                .knows_graphs = true,
                .knows_pairs = true,
                .knows_storage_options = true,
                .randomized = true,
                .cooperative = true,
                .first_effort = first_effort,
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        pair_search(state, {.seed = options.seed, .moves = options.effort}, name);
    }

private:
    [[nodiscard]] static bool frees_own_memory(const problem& p) {
        bool own = true;
        for (const stage s : p.graph.all_stages())
            p.graph.for_each_edge_out_of(s, [&](const edge& e) {
                own = own && (e.held <= memory_size{} || p.rank_of(e.from) == p.rank_of(e.to));
            });
        return own;
    }
};
static_assert(check_search_strategy<pair_strategy>());

} // namespace optpipe
