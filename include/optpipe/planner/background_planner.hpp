#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/processor_share.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/value.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace optpipe {

/// How to plan in the background.
struct background_options {
    /// The options with which each submission is planned. The background planner itself sets `start`, `stop`,
    /// `stops_without_plan`, `threads` and `processor`. Without a time limit, a search runs until its plan is proven
    /// optimal or all effort is used up.
    plan_options how{};
    /// The largest number of threads that plan.
    std::size_t threads = 1;
    /// The largest average share of its threads' processor time that the planner may use, in (0, 1]
    /// (`processor_share`).
    double share = 1.0;
    /// Called with each better schedule before it is reported. The planner reports the schedule that `adapt` returns.
    /// If `adapt` returns null, nothing is reported. The planner's threads call `adapt`, one call at a time. If unset,
    /// schedules are reported as found. Contract: the returned schedule is valid for the problem. Invalid schedules are
    /// never published.
    std::function<std::shared_ptr<const schedule>(const problem&, const std::shared_ptr<const schedule>&)> adapt{};
    std::vector<any_search_strategy> strategies = standard_strategies();
};

/// The best plan found until now for a submission.
struct background_plan {
    /// The number of the submission, counted from 1, or 0 before the first submission.
    std::uint64_t submission = 0;
    /// Increases with each better schedule, across all submissions. The version is 0 until the submission has a
    /// schedule.
    std::uint64_t version = 0;
    /// The best schedule, or null before the first schedule.
    std::shared_ptr<const optpipe::schedule> schedule{};
    duration objective = duration::unlimited();
    duration bound{};
    /// The strategy or builder that found the schedule.
    std::string method{};
    /// Whether the search has ended.
    bool finished = false;
    /// The refusal or the exception of `plan`. Empty if there is a plan.
    std::string failure{};
};

/// Plans on its own threads, one problem at a time. Other threads poll for the best plan.
///
/// `submit` and `poll` copy a few values under a lock and never search. A submission replaces the previous one at once.
/// After `submit`, `poll` reports only the new submission. The search for the new submission begins when the old search
/// has stopped. The destructor stops the search and waits until it has ended. All members may be called from any
/// thread.
class background_planner {
public:
    explicit background_planner(background_options options);
    background_planner(const background_planner&) = delete;
    background_planner& operator=(const background_planner&) = delete;
    ~background_planner();

    /// Begins to plan a problem. If a schedule is given, planning starts from it (`plan_options::start`). Returns the
    /// number of the submission.
    std::uint64_t submit(problem p, std::optional<schedule> start = std::nullopt);
    /// The best plan of the latest submission until now.
    [[nodiscard]] background_plan poll() const;
    /// Waits until the latest submission has ended, for at most `time`. Returns whether the latest submission has
    /// ended.
    bool wait_for(std::chrono::duration<double> time) const;
    /// The processor time of all searches, in seconds.
    [[nodiscard]] double processor_seconds() const { return processor_->seconds(); }

private:
    struct job {
        optpipe::problem problem;
        std::optional<schedule> start;
    };

    static double processors(const background_options& options);

    void work(const std::stop_token& stop);
    void search(const job& now, std::uint64_t number, std::stop_token until);
    /// Calls `change(best)`, unless there is a later submission.
    template <class Change> void publish(std::uint64_t number, const Change& change) {
        const std::scoped_lock lock{mutex_};
        if (number != submissions_) return;
        change(best_);
        if (best_.finished) finished_.notify_all();
    }
    struct candidate {
        std::shared_ptr<const schedule> plan{};
        schedule_value value{};
    };
    [[nodiscard]] candidate adapted(const problem& p, const std::shared_ptr<const schedule>& found) const;
    void improve(std::uint64_t number, const search_step& step, const candidate& found);
    void finish(std::uint64_t number, const problem& p, const plan_result& made);
    void replace(background_plan& best, const candidate& better, const std::string& method);
    void stop_current();

    const background_options options_;
    const std::shared_ptr<processor_share> processor_;
    mutable std::mutex mutex_{};
    std::condition_variable_any submitted_{};
    mutable std::condition_variable_any finished_{};
    std::optional<job> next_{};
    std::stop_source current_{};
    background_plan best_{};
    schedule_value best_value_{};
    std::uint64_t submissions_ = 0;
    std::uint64_t versions_ = 0;
    std::jthread planner_;
};

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE background_planner::background_planner(background_options options)
    : options_{std::move(options)}, processor_{std::make_shared<processor_share>(processors(options_))},
      planner_{[this](const std::stop_token& stop) { work(stop); }} {}

OPTPIPE_INLINE background_planner::~background_planner() {
    planner_.request_stop();
    stop_current();
}

OPTPIPE_INLINE std::uint64_t background_planner::submit(problem p, std::optional<schedule> start) {
    std::uint64_t number = 0;
    auto old = [&] {
        const std::scoped_lock lock{mutex_};
        number = ++submissions_;
        best_ = {};
        best_value_ = {};
        best_.submission = number;
        next_.emplace(job{std::move(p), std::move(start)});
        return std::exchange(current_, std::stop_source{});
    }();
    old.request_stop();
    submitted_.notify_one();
    return number;
}

OPTPIPE_INLINE background_plan background_planner::poll() const {
    const std::scoped_lock lock{mutex_};
    return best_;
}

OPTPIPE_INLINE bool background_planner::wait_for(std::chrono::duration<double> time) const {
    constexpr std::chrono::duration<double> years{1e9}; // a time within the clock's range
    std::unique_lock lock{mutex_};
    return finished_.wait_for(lock, std::min(time, years), [&] { return best_.finished; });
}

OPTPIPE_INLINE double background_planner::processors(const background_options& options) {
    OPTPIPE_EXPECT(options.threads > 0, "background_planner: needs a thread");
    OPTPIPE_EXPECT(options.share > 0.0 && options.share <= 1.0, "background_planner: the share is in (0, 1]");
    return options.share < 1.0 ? options.share * static_cast<double>(options.threads)
                               : std::numeric_limits<double>::infinity();
}

OPTPIPE_INLINE void background_planner::work(const std::stop_token& stop) {
    for (;;) {
        std::unique_lock lock{mutex_};
        if (!submitted_.wait(lock, stop, [&] { return next_.has_value(); })) return;
        const auto now = *std::exchange(next_, std::nullopt);
        const auto number = submissions_;
        const auto until = current_.get_token();
        lock.unlock();
        if (stop.stop_requested()) return;
        search(now, number, until);
    }
}

OPTPIPE_INLINE void background_planner::search(const job& now, std::uint64_t number, std::stop_token until) {
    std::string failure;
    try {
        auto how = options_.how;
        how.start = now.start;
        how.stop = std::move(until);
        how.stops_without_plan = true; // nobody reads the plan of a stopped submission
        how.threads = options_.threads;
        how.processor = processor_;
        constexpr auto unlimited = std::numeric_limits<double>::infinity();
        if (!how.time_limit) how.time_limit = std::chrono::duration<double>{unlimited};
        std::shared_ptr<const schedule> seen;
        how.progress = [&](const search_progress& step) {
            const bool is_new = step.incumbent && std::exchange(seen, step.incumbent) != step.incumbent;
            improve(number, step, is_new ? adapted(now.problem, step.incumbent) : candidate{});
            if (options_.how.progress) options_.how.progress(step);
        };
        if (const auto made = plan(now.problem, how, options_.strategies))
            finish(number, now.problem, *made);
        else
            failure = describe(made.why());
    } catch (...) {
        failure = caught_reason();
    }
    if (failure.empty()) return;
    publish(number, [&](background_plan& best) {
        best.finished = true;
        best.failure = std::move(failure);
    });
}

OPTPIPE_INLINE background_planner::candidate
background_planner::adapted(const problem& p, const std::shared_ptr<const schedule>& found) const {
    const auto plan = options_.adapt ? options_.adapt(p, found) : found;
    if (!plan) return {};
    OPTPIPE_EXPECT(plan == found || is_valid(p, *plan), "background_planner: `adapt` made an invalid schedule");
    return {plan, value_of(p, *plan)};
}

OPTPIPE_INLINE void background_planner::improve(std::uint64_t number, const search_step& step, const candidate& found) {
    publish(number, [&](background_plan& best) {
        best.bound = step.bound;
        if (found.plan && is_better(found.value, best_value_)) replace(best, found, step.strategy);
    });
}

OPTPIPE_INLINE void background_planner::finish(std::uint64_t number, const problem& p, const plan_result& made) {
    // `improve` has reported this schedule unless the search replaced it at the end.
    const auto found = adapted(p, std::make_shared<const schedule>(made.schedule));
    publish(number, [&](background_plan& best) {
        if (found.plan && (is_better(found.value, best_value_) || made.robust)) replace(best, found, made.method);
        best.bound = made.bound;
        best.finished = true;
    });
}

OPTPIPE_INLINE void background_planner::replace(background_plan& best, const candidate& better,
                                                const std::string& method) {
    best.version = ++versions_;
    best.schedule = better.plan;
    best.objective = better.value.objective;
    best.method = method;
    best_value_ = better.value;
}

OPTPIPE_INLINE void background_planner::stop_current() {
    auto current = [&] {
        const std::scoped_lock lock{mutex_};
        return current_;
    }();
    current.request_stop();
}

} // namespace optpipe
#endif
