#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/online/controller.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/background_planner.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <chrono>
#include <memory>
#include <optional>

namespace optpipe {

/// Plans each step before it begins, for microbatches that differ from step to step. The costs of a step are known as
/// soon as the data of its microbatches is available. Each search starts from the previous plan (`carry_over`) and runs
/// during the training:
///
///     planner.submit(next);                    // as soon as the next step's data is there
///     run(planner.next_plan());                // waits until the time limit at the latest
///
/// Only one thread may use a planner at a time.
class step_planner {
public:
    /// The default options: a tenth of a second on two threads. The default options suffice for packed documents on 8
    /// ranks (bench/step_plans.cpp).
    [[nodiscard]] static background_options usual_options();

    /// `first` is a plan for an earlier step, if any. Contract: `how` has a time limit, and doesn't set `robust`.
    explicit step_planner(std::optional<schedule> first = {}, background_options how = usual_options());

    /// Begins to plan a step. Replaces a submitted step whose plan hasn't been taken.
    void submit(problem next);
    /// Returns the plan of the last submitted step, which becomes the plan in use. Waits until the search has ended.
    /// Throws `error` with the reason if there is no plan. Contract: a step has been submitted since the last call.
    [[nodiscard]] online_plan next_plan();

private:
    static background_options checked(background_options how);

    std::shared_ptr<const schedule> in_use_{};
    /// The submitted step's problem, and the step's duration in the order in use.
    std::optional<online_plan> next_{};
    background_planner planner_;
};

} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/schedule/construct/carry_over.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE background_options step_planner::usual_options() {
    background_options how;
    how.how.time_limit = std::chrono::milliseconds{100};
    how.threads = 2;
    return how;
}

OPTPIPE_INLINE background_options step_planner::checked(background_options how) {
    OPTPIPE_EXPECT(how.how.time_limit && std::isfinite(how.how.time_limit->count()),
                   "step_planner: needs a time limit");
    OPTPIPE_EXPECT(!how.how.robust, "step_planner: doesn't plan for varying durations");
    return how;
}

OPTPIPE_INLINE step_planner::step_planner(std::optional<schedule> first, background_options how)
    : planner_{checked(std::move(how))} {
    if (first) in_use_ = std::make_shared<const schedule>(*std::move(first));
}

OPTPIPE_INLINE void step_planner::submit(problem next) {
    std::optional<schedule> start;
    if (in_use_)
        if (auto carried = carry_over(next, *in_use_)) start = *std::move(carried);
    next_.emplace(online_plan{next, nullptr, {}, start ? objective_of(next, *start) : duration::unlimited(), {}});
    planner_.submit(std::move(next), std::move(start));
}

OPTPIPE_INLINE online_plan step_planner::next_plan() {
    OPTPIPE_EXPECT(next_.has_value(), "step_planner: no step has been submitted");
    planner_.wait_for(std::chrono::duration<double>{std::numeric_limits<double>::infinity()});
    const auto best = planner_.poll();
    if (!best.schedule) throw error{"step planner: " + best.failure};
    auto plan = *std::exchange(next_, std::nullopt);
    plan.schedule = in_use_ = best.schedule;
    plan.objective = best.objective;
    plan.method = best.method;
    return plan;
}

} // namespace optpipe
#endif
