#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/cells_of.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string_view>

namespace optpipe {

/// `propagation_bound` as a strategy. Runs once, as the result is always the same. It isn't started if it would take
/// several times its time slice, and is interrupted at the end of that.
class propagation_strategy {
public:
    static constexpr std::string_view name = "propagation";
    /// Of storage options it knows a relaxation without them.
    [[nodiscard]] static strategy_traits traits(const problem& p) {
        return {.applicable = detail::cells_of(p) <= 10'000, .knows_storage_options = true};
    }

    void operator()(search_state& state, const strategy_options&) const {
        const auto cells = static_cast<double>(detail::cells_of(state.problem()));
        constexpr double seconds_per_square = 1.5e-7; // two or three seconds for 32 ranks and 128 microbatches
        const std::chrono::duration<double> expected{seconds_per_square * cells * cells};
        constexpr double time_factor = 4.0; // as in the concurrent portfolio
        const auto left = state.limits().deadline - std::chrono::steady_clock::now();
        if (time_factor * left < expected || done_->exchange(true)) return;
        state.raise_bound(std::min(bound_by(state), state.objective()), name);
    }

private:
    [[nodiscard]] static duration bound_by(const search_state& state) {
        constexpr double precision = 1e-8;
        return propagation_bound(state.problem(), state.bound(), precision, [&] { return state.done(); });
    }

    std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};
static_assert(check_search_strategy<propagation_strategy>());

} // namespace optpipe
