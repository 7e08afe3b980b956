#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// `propagation_bound` as a strategy. The strategy runs to its end only once per search: the result is always the same.
/// A time slice that ends earlier offers a bound: the largest refuted objective. The next slice is longer, and
/// continues from the offered bound.
class propagation_strategy {
public:
    static constexpr std::string_view name = "propagation";
    /// Largest number of cells. The limit is needed because nothing interrupts a run without a time limit. 2500 cells
    /// take a second, and the time grows with the square of the number of cells.
    static constexpr std::size_t most_cells = 10'000;
    /// Number of chains on a stage. F, I and W have one chain each.
    static constexpr double chains_per_stage = 3.0;
    /// Largest accepted result of `closure_of`. A result of 2e8 takes at most some tenths of a second. A result of 6e10
    /// took a minute (4 ranks with 512 stages each).
    static constexpr double most_closure = 2e8;
    /// Relative precision of the bound, far finer than any requested gap.
    static constexpr double precision = 1e-8;

    propagation_strategy() = default;
    /// A copy belongs to another search, in which the strategy hasn't run.
    propagation_strategy(const propagation_strategy&) noexcept {}
    propagation_strategy& operator=(const propagation_strategy&) noexcept {
        complete_ = false;
        return *this;
    }

    /// The strategy replaces storage options by a relaxation without them.
    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.applicable = p.graph.cells() <= most_cells && closure_of(p) <= most_closure,
                .knows_graphs = true,
                .knows_storage_options = true};
    }

    void operator()(search_state& state, const strategy_options&) const {
        if (complete_) return;
        state.raise_bound(std::min(bound_by(state), state.objective()), name);
        complete_ = !state.done();
    }

private:
    /// Number of steps of one transitive closure of the orders on all ranks. Nothing can interrupt the closure.
    [[nodiscard]] static double closure_of(const problem& p) {
        std::size_t slices = 0;
        std::size_t most_equal = 0;
        for (const auto& equal : sequences_by_cost(p)) {
            slices += equal.slices.size();
            most_equal = std::max(most_equal, equal.count);
        }
        double steps = 0.0;
        for (const auto& stages : stages_by_rank(p.graph)) {
            const auto chains = chains_per_stage * static_cast<double>(stages.size() * slices);
            steps += chains * chains * chains * static_cast<double>(most_equal);
        }
        return steps;
    }
    [[nodiscard]] static duration bound_by(const search_state& state) {
        return propagation_bound(state.problem(), state.bound(), precision, stop_check{state});
    }

    mutable std::atomic<bool> complete_{false};
};
static_assert(check_search_strategy<propagation_strategy>());

} // namespace optpipe
