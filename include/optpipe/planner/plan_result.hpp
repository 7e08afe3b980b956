#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/robust_options.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/report.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// Why a search for a plan ended.
enum class plan_end {
    optimal,      ///< no schedule is better, except by rounding
    gap,          ///< the requested gap was reached
    effort_spent, ///< all strategies have used up their effort
    time_limit,
    stop_request,
};

[[nodiscard]] constexpr std::string_view text_of(plan_end why) {
    switch (why) {
    case plan_end::optimal: return "optimal";
    case plan_end::gap: return "gap reached";
    case plan_end::effort_spent: return "effort spent";
    case plan_end::time_limit: return "time limit";
    case plan_end::stop_request: return "stop request";
    }
    return "?";
}

/// The contribution of one strategy or builder to a plan.
struct contribution {
    std::string name;
    std::size_t runs = 0;
    /// Wall-clock seconds, summed over the strategy's runs.
    double seconds = 0.0;
    /// Number of improvements of the incumbent by the strategy, and the strategy's best objective. The objective is
    /// unlimited if the strategy found no schedule.
    std::size_t schedules = 0;
    duration objective = duration::unlimited();
    /// Number of times the strategy raised the bound, and its highest proven bound (0 for none).
    std::size_t bounds = 0;
    duration bound{};
};

/// The result of a builder.
struct builder_result {
    std::string method;
    /// The objective of the schedule. If no schedule of the builder fits in memory, the objective is empty, and `why`
    /// has the reason.
    std::optional<duration> objective{};
    refusal why{};
    double seconds = 0.0;
    /// Whether the builder makes a published schedule.
    bool published = true;
};

/// The method name of a plan that comes from `plan_options::start`.
inline constexpr std::string_view start_method = "start";

/// Whether a plan from the cache was used, of the same problem or of a similar problem.
enum class cache_use { none, exact, near };

/// A schedule, and how it was found. `bound` is at most the objective of every valid schedule.
struct plan_result {
    optpipe::schedule schedule{};
    duration objective{};
    duration bound{};
    /// (objective − bound) / objective.
    double gap = 0.0;
    plan_end why = plan_end::effort_spent;
    /// The strategy or builder that found the schedule.
    std::string method{};
    double seconds = 0.0;
    std::vector<search_step> history{};
    /// Builders and strategies that ran, in the order of their first runs.
    std::vector<contribution> contributions{};
    std::vector<builder_result> builders{};
    cache_use cached = cache_use::none;
    /// The result under random durations, if `plan_options::robust` is set. `bound` still refers to the objective
    /// without noise.
    std::optional<robust_result> robust{};
};

/// The best result of a builder of published schedules. Null if no published schedule fits in memory, or if the plan
/// came from the cache (`cached`).
[[nodiscard]] inline const builder_result* best_published(const plan_result& planned) {
    const builder_result* best = nullptr;
    for (const auto& b : planned.builders)
        if (b.published && b.objective && (!best || *b.objective < *best->objective)) best = &b;
    return best;
}

/// The report for files, pictures and tables.
[[nodiscard]] inline schedule_report report_of(const problem& p, const plan_result& planned) {
    return make_report(p, planned.method, planned.schedule, planned.bound);
}

} // namespace optpipe
