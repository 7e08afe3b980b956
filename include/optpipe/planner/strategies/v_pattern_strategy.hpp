#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/lns/rescheduling_search.hpp"
#include "optpipe/planner/modulo/steady_state.hpp"
#include "optpipe/planner/modulo/v_pattern_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

/// Periodic patterns of v placement with one storage option, without offloading, for all microbatches; list scheduling
/// makes the beginning and the end of the step. Every other call uses the most common option among the incumbent's
/// stashes; the others go through the options that all stages have.
struct v_pattern_strategy {
    static constexpr std::string_view name = "v-patterns";
    /// Effort of the first call per rank: its cyclic orders for the narrowest beams of the first few periods. Some tens
    /// of milliseconds with 16 ranks.
    static constexpr std::size_t first_effort_per_rank = 4'000;
    /// List scheduling of an end takes as long as this number of orders per cell.
    static constexpr std::size_t orders_per_cell = 2;
    /// Least number of schedules per end; most is gained by then.
    static constexpr std::size_t least_trials = 200;
    /// A pattern whose step is longer than this times the incumbent's is dropped. List scheduling of the ends made
    /// steps up to 7 % shorter, on the only problem on which that was measured.
    static constexpr double most_gain = 1.1;
    /// Share relative to other strategies: most is found in the first calls. Not tuned.
    static constexpr double share = 0.5;
    /// Passes for completing a pattern, and for reading the schedule for list scheduling.
    static constexpr double least_passes = 10.0;

    [[nodiscard]] static strategy_traits traits(const problem& p) {
        const bool offloads =
            std::any_of(p.costs.begin(), p.costs.end(), [](const stage_costs& c) { return c.can_offload(); });
        return {.applicable = is_v_placed(p.graph) && p.split_backward && !offloads &&
                              p.graph.microbatches() >= 2 * p.graph.ranks(),
                .knows_storage_options = true,
                .randomized = true,
                .first_effort = first_effort_per_rank * p.graph.ranks(),
                .share = share,
                .least_passes = least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        const auto& p = state.problem();
        if (!p.has_storage_options())
            search(state, p, options, [](order found) { return found; });
        else
            search_option(state, options);
    }

private:
    [[nodiscard]] static std::size_t trials(const problem& p, const strategy_options& options) {
        return std::max(least_trials, options.effort / (orders_per_cell * p.graph.cells()));
    }
    /// For odd seeds, the most common option among the incumbent's stashes; for even seeds, one after the other.
    [[nodiscard]] static std::size_t first_option(const search_state& state, const strategy_options& options,
                                                  const std::vector<bounded_text<32>>& names) {
        const auto best = state.incumbent();
        if (!best || options.seed % 2 == 0) return options.seed / 2;
        std::vector<std::size_t> count(names.size() + 1, 0);
        for (const auto& timed : best->operations)
            if (timed.op.kind == operation_kind::forward) {
                const auto own = storage_of(state.problem(), timed.op).name;
                ++count[static_cast<std::size_t>(std::find(names.begin(), names.end(), own) - names.begin())];
            }
        return static_cast<std::size_t>(std::max_element(count.begin(), count.end() - 1) - count.begin());
    }
    /// Searches with the first option, starting at `first_option`, that may lead to an improvement.
    static void search_option(search_state& state, const strategy_options& options) {
        const auto& p = state.problem();
        const auto names = common_option_names(p);
        const auto first = names.empty() ? 0 : first_option(state, options, names);
        for (std::size_t i = 0; i < names.size() && !state.done(); ++i) {
            const auto stored = *find_common_option(p, names[(first + i) % names.size()].view());
            auto uniform = uniform_problem(p, stored);
            for (auto& c : uniform.costs)
                c.transfer.reset();
            if (!validate(uniform).empty() || !(bounds_of(uniform).best() < state.target())) continue;
            search(state, uniform, options, [&](const order& found) { return with_storage(p, stored, found); });
            return;
        }
    }
    /// Searches a problem without storage options; `convert` turns its orders into those of the original problem.
    template <class Convert>
    static void search(search_state& state, const problem& plain, const strategy_options& options, Convert convert) {
        const auto slowest = std::min(plain.serial_time(), state.target());
        const auto longest_period = slowest / static_cast<double>(plain.graph.microbatches());
        search_state own{plain, state.limits()};
        detail::steady_state run{own};
        const auto reschedule = [&](search_state& any) {
            rescheduling_search(any, {.seed = options.seed, .trials = trials(any.problem(), options)});
        };
        const stop_when done{[&] { return own.done(); }};
        detail::v_pattern_search{run.reduced(),
                                 options.seed,
                                 options.effort,
                                 longest_period,
                                 [&](const periodic_pattern& found) { run.offer(found); },
                                 done}
            .run();
        if (own.objective() > most_gain * state.objective()) return;
        run.finish(reschedule);
        if (!run.is_reduced()) reschedule(own);
        if (const auto found = own.incumbent()) state.offer(convert(order_of(*found)), name);
    }
};
static_assert(check_search_strategy<v_pattern_strategy>());

} // namespace optpipe
