#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/report.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// Why a search for a plan ended.
enum class plan_end {
    optimal,      ///< no schedule is better, up to rounding
    gap,          ///< as close to the bound as was asked for
    effort_spent, ///< all parts have done what they were to do
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

/// What one part did for a plan.
struct part_contribution {
    std::string name;
    std::size_t runs = 0;
    /// Of the wall clock, summed over its runs.
    double seconds = 0.0;
    /// How often it had a better schedule than all before, and the best of them; unlimited without one.
    std::size_t schedules = 0;
    duration objective = duration::unlimited();
    /// How often it raised the bound, and how far; 0 if never.
    std::size_t bounds = 0;
    duration bound{};
};

/// How a builder did on its own.
struct builder_result {
    std::string method;
    /// Empty: it has no schedule within the memory, for this reason.
    std::optional<duration> objective{};
    refusal why{};
    double seconds = 0.0;
    /// Whether it is one of the published schedules.
    bool published = true;
};

/// Whether a stored plan had a share in it.
enum class cache_use { none, exact, near };

/// A schedule, how it was found, and how good it is: bound ≤ objective of every valid schedule.
struct plan_result {
    optpipe::schedule schedule{};
    duration objective{};
    duration bound{};
    /// (objective − bound) / objective.
    double gap = 0.0;
    plan_end why = plan_end::effort_spent;
    /// Who found the schedule.
    std::string method{};
    double seconds = 0.0;
    std::vector<search_step> history{};
    /// Builders and parts that ran, in the order in which they first did.
    std::vector<part_contribution> parts{};
    std::vector<builder_result> builders{};
    cache_use cached = cache_use::none;
};

/// The best schedule of the literature beside a plan; null where none fits.
[[nodiscard]] inline const builder_result* best_published(const plan_result& planned) {
    const builder_result* best = nullptr;
    for (const auto& b : planned.builders)
        if (b.published && b.objective && (!best || *b.objective < *best->objective)) best = &b;
    return best;
}

/// As files, pictures and verdicts want it.
[[nodiscard]] inline schedule_report report_of(const problem& p, const plan_result& planned) {
    return make_report(p, planned.method, planned.schedule, planned.bound);
}

} // namespace optpipe
