#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/processor_share.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/value.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The limits of a search. All limits that are set hold at once.
struct search_limits {
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop{};
    /// A stop request here means that nobody will read the results. Even work in progress may be dropped.
    std::stop_token abandon{};
    /// The relative gap, (objective − bound) / objective, at which the search stops. With a gap of 0, the search stops
    /// when the incumbent is proven optimal.
    double gap = 0.0;
    /// The largest number of distinct pairs on a rank. In a schedule with more distinct pairs, the pairs that save the
    /// least time are split.
    std::size_t most_distinct_pairs = std::numeric_limits<std::size_t>::max();
    /// Makes callers of `done()` wait for their share of the processor. If null, no caller waits.
    std::shared_ptr<processor_share> processor{};
};

/// How contract violations of strategies are handled.
struct failure_handling {
    /// Whether the search continues after a contract violation in a strategy. If false, the error is rethrown to the
    /// caller.
    bool drop = contracts_throw();
    /// Called with one sentence for each dropped failure.
    std::function<void(std::string_view)> warn{};
};

/// One improvement of the incumbent or the bound. `seconds` is the time of the improvement. `objective` and `bound` are
/// the values after the improvement.
struct search_step {
    std::string strategy;
    double seconds = 0.0;
    /// The objective of the incumbent. Unlimited before the first schedule.
    duration objective{};
    duration bound{};
};

/// A step together with the best schedule after it, for observers. The schedule is null before the first schedule is
/// found. The schedule is shared, not copied. The history of a search doesn't keep the schedule.
struct search_progress : search_step {
    std::shared_ptr<const schedule> incumbent{};
};

/// The shared state of all strategies of a search: incumbent, proven bound, and whether to stop.
///
/// The incumbent is the best schedule by `is_better`. Among schedules with equal objectives, the one with less
/// recomputation and fewer transfers is better. Time permitting, unneeded recomputation and transfers of an offered
/// schedule are removed (`with_cheaper_storage_in_place`).
///
/// All members may be called from any thread. `objective`, `bound` and `done` take an atomic load and at most a read of
/// the clock. A strategy offers schedules and bounds under its name, reads those of other strategies, and returns once
/// `done()` is true. A `stop_check` made from the state stops when `done()` is true.
class search_state final : public stop_condition {
public:
    using observer = std::function<void(const search_progress&)>;

    /// `observe` is called with every step, the failure handler with each failure, one call at a time.
    explicit search_state(optpipe::problem p, search_limits limits = {}, observer o = {}, failure_handling f = {})
        : shared_{std::make_shared<shared_state>(std::move(p), std::move(o), std::move(f))}, limits_{
                                                                                                 std::move(limits)} {}
    /// Another view of the same state, with its own limits. All offers through this view are recorded in the history
    /// under the name `strategy`.
    search_state(const search_state& other, search_limits limits, std::string strategy)
        : shared_{other.shared_}, limits_{std::move(limits)}, strategy_{std::move(strategy)} {}
    search_state(const search_state&) = delete;
    search_state& operator=(const search_state&) = delete;

    [[nodiscard]] const optpipe::problem& problem() const { return shared_->problem; }

    /// Times the order, and makes it the incumbent if it is better. Returns the objective of the order as it was
    /// offered. Unlimited if the order isn't executable within the memory limits.
    duration offer(const order& candidate, std::string_view strategy);
    /// Offers a valid schedule, after `time_order` has tried to improve its times. Returns the objective.
    duration offer(const schedule& candidate, std::string_view strategy);
    /// Offers a valid schedule that `time_order` has made, without timing it again. Returns the objective of the
    /// schedule.
    duration offer_timed(schedule candidate, std::string_view strategy);
    /// Raises the bound to `proven`, a lower bound on the objective of every valid schedule. An unlimited bound means
    /// that there is no valid schedule.
    void raise_bound(duration proven, std::string_view strategy);

    /// The search's object of type `T`. Calls of strategies share data through this object, in addition to schedules
    /// and bounds. The first request makes the object. The object lives as long as the search. Any thread may call this
    /// function.
    template <std::default_initializable T> [[nodiscard]] std::shared_ptr<T> shared() {
        const std::scoped_lock lock{shared_->mutex};
        auto& object = shared_->objects[&key_of<T>];
        if (!object) object = std::make_shared<T>();
        return std::static_pointer_cast<T>(object);
    }

    /// Calls a strategy. If failures are dropped, a contract violation ends only this call, and earlier results are
    /// kept. Returns false if there was a contract violation.
    template <class Call> bool try_strategy(std::string_view name, const Call& call) {
        try {
            call();
            return true;
        } catch (const contract_error& e) {
            if (!shared_->failures.drop) throw;
            report_failure(std::string{name} + ": " + e.what());
            return false;
        }
    }

    /// The objective of the incumbent. Unlimited before the first schedule.
    [[nodiscard]] duration objective() const { return duration{shared_->objective.load(std::memory_order_acquire)}; }
    [[nodiscard]] duration bound() const { return duration{shared_->bound.load(std::memory_order_acquire)}; }
    /// The best schedule, or null before the first schedule. The objective of the incumbent is `objective()`, up to
    /// rounding.
    [[nodiscard]] std::shared_ptr<const schedule> incumbent() const;
    /// Whether a schedule with this value would become the incumbent.
    [[nodiscard]] bool is_improvement(const schedule_value& value) const {
        return is_better(value, {objective(), duration{shared_->storage.load(std::memory_order_acquire)}});
    }
    /// The cutoff. A schedule is an improvement if its objective is below this value.
    [[nodiscard]] duration target() const { return objective() - slack(); }
    /// The tolerance within which two times are equal, relative to the objective. Before the first schedule, the
    /// tolerance is relative to the serial time. (A single unused storage option can make the serial time many times
    /// longer.)
    [[nodiscard]] duration slack() const { return std::min(shared_->slack, tolerance{}.at(objective())); }

    /// The time of one pass through a schedule, in seconds, or 0 before the first schedule. The time of work that can't
    /// be interrupted is estimated in passes.
    [[nodiscard]] double pass_seconds() const { return shared_->pass_seconds.load(std::memory_order_relaxed); }
    /// Whether there is time before the deadline for `passes` passes through the problem.
    [[nodiscard]] bool has_time_for(double passes) const;
    /// Seconds until the deadline, or infinity if there is no deadline.
    [[nodiscard]] double seconds_left() const;

    /// Whether objective and bound are equal, up to rounding.
    [[nodiscard]] bool proven() const { return objective() - bound() <= slack() || bound().is_unlimited(); }
    /// Whether the incumbent is proven optimal, or the requested gap is reached.
    [[nodiscard]] bool settled() const;
    /// Whether the search is settled, the deadline has passed, or a stop was requested. Waits while the search has used
    /// more than its share of the processor.
    [[nodiscard]] bool done() const;
    [[nodiscard]] bool holds() const override { return done(); }
    /// Whether nobody will read the results.
    [[nodiscard]] bool abandoned() const { return limits_.abandon.stop_requested(); }
    [[nodiscard]] const search_limits& limits() const { return limits_; }
    [[nodiscard]] double seconds() const;
    [[nodiscard]] std::vector<search_step> history() const;
    /// The gap closed through this view. Each improvement through this view adds the share of the relative gap that it
    /// closes.
    [[nodiscard]] double gap_closed() const;

private:
    struct shared_state {
        shared_state(optpipe::problem p, observer o, failure_handling f)
            : problem{std::move(p)}, observe{std::move(o)}, failures{std::move(f)},
              begin{std::chrono::steady_clock::now()}, slack{tolerance{}.at(problem.serial_time())} {}

        const optpipe::problem problem;
        const observer observe;
        const failure_handling failures;
        const std::chrono::steady_clock::time_point begin;
        const duration slack; ///< a tolerance relative to the serial time
        /// The least objective of all offered schedules. The incumbent's objective may be slightly higher: the same
        /// times may be added in another order.
        std::atomic<double> objective{duration::unlimited().value()};
        /// The time that the incumbent spends on transfers and recomputation.
        std::atomic<double> storage{duration::unlimited().value()};
        std::atomic<double> bound{0.0};
        std::atomic<double> pass_seconds{0.0};
        mutable std::mutex mutex{};
        std::shared_ptr<const schedule> incumbent{};
        std::vector<search_step> history{};
        std::vector<std::string> reported{};
        /// The shared objects, indexed by type. The key is the address of the type's `key_of`.
        std::map<const char*, std::shared_ptr<void>> objects{};
    };

    template <class T> static constexpr char key_of = 0;

    /// Time to remove unneeded recomputation and transfers and to check the result, in passes through the problem.
    /// Measured for 32 ranks and 128 microbatches.
    static constexpr double passes_to_reduce = 8.0;

    void record(schedule timed, std::string_view strategy);
    [[nodiscard]] schedule reduced(schedule timed) const;
    void report_failure(const std::string& sentence);
    /// (objective − bound) / objective, or 1 before the first schedule.
    [[nodiscard]] double gap() const;
    void note(std::string_view strategy, double gap_before);

    std::shared_ptr<shared_state> shared_;
    search_limits limits_;
    std::string strategy_{};
    double gap_closed_ = 0.0;
};

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/stop_check.hpp"
#include "optpipe/schedule/construct/cheaper_storage.hpp"
#include "optpipe/schedule/construct/distinct_pairs.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/report.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cstddef>

namespace optpipe {

OPTPIPE_INLINE duration search_state::offer(const order& candidate, std::string_view strategy) {
    if (abandoned()) return duration::unlimited();
    auto timed = time_order(problem(), candidate, stop_check{limits_.abandon});
    if (!timed) return duration::unlimited();
    const auto value = objective_of(problem(), *timed);
    record(*std::move(timed), strategy);
    return value;
}

OPTPIPE_INLINE duration search_state::offer(const schedule& candidate, std::string_view strategy) {
    const auto value = value_of(problem(), candidate);
    if (!is_improvement(value) || abandoned()) return value.objective;
    auto timed = time_order(problem(), order_of(candidate), stop_check{limits_.abandon});
    if (timed && objective_of(problem(), *timed) <= value.objective) {
        const auto better = objective_of(problem(), *timed);
        record(*std::move(timed), strategy);
        return better;
    }
    record(candidate, strategy);
    return value.objective;
}

OPTPIPE_INLINE duration search_state::offer_timed(schedule candidate, std::string_view strategy) {
    const auto value = objective_of(problem(), candidate);
    record(std::move(candidate), strategy);
    return value;
}

OPTPIPE_INLINE void search_state::raise_bound(duration proven, std::string_view strategy) {
    if (!(proven > bound())) return;
    const std::scoped_lock lock{shared_->mutex};
    if (!(proven > bound())) return;
    OPTPIPE_EXPECT(!shared_->incumbent || proven <= objective() + 2.0 * slack(),
                   "search_state: a bound above a schedule");
    const double before = gap();
    shared_->bound.store(std::min(proven, objective()).value());
    note(strategy, before);
}

OPTPIPE_INLINE std::shared_ptr<const schedule> search_state::incumbent() const {
    const std::scoped_lock lock{shared_->mutex};
    return shared_->incumbent;
}

OPTPIPE_INLINE bool search_state::has_time_for(double passes) const {
    return passes * pass_seconds() <= seconds_left();
}

OPTPIPE_INLINE double search_state::seconds_left() const {
    using clock = std::chrono::steady_clock;
    if (limits_.deadline == clock::time_point::max()) return std::numeric_limits<double>::infinity();
    return std::chrono::duration<double>(limits_.deadline - clock::now()).count();
}

OPTPIPE_INLINE bool search_state::settled() const {
    return proven() || (!objective().is_unlimited() && objective() - bound() <= limits_.gap * objective());
}

OPTPIPE_INLINE bool search_state::done() const {
    if (limits_.processor) limits_.processor->pause_if_over(limits_.stop, limits_.deadline);
    return settled() || limits_.stop.stop_requested() || std::chrono::steady_clock::now() >= limits_.deadline;
}

OPTPIPE_INLINE double search_state::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - shared_->begin).count();
}

OPTPIPE_INLINE std::vector<search_step> search_state::history() const {
    const std::scoped_lock lock{shared_->mutex};
    return shared_->history;
}

OPTPIPE_INLINE schedule search_state::reduced(schedule timed) const {
    if (!is_plain(problem()) || storage_time_of(problem(), timed) <= duration{} || !has_time_for(passes_to_reduce))
        return timed;
    auto cheaper = with_cheaper_storage_in_place(problem(), timed, stop_check{limits_.stop, limits_.deadline});
    const bool is_sound = cheaper.operations != timed.operations && is_valid(problem(), cheaper);
    return is_sound ? std::move(cheaper) : std::move(timed);
}

OPTPIPE_INLINE void search_state::record(schedule timed, std::string_view strategy) {
    if (!is_improvement(value_of(problem(), timed)) || abandoned()) return;
    const bool is_limited = limits_.most_distinct_pairs < std::numeric_limits<std::size_t>::max();
    if (is_limited && most_distinct_pairs(timed) > limits_.most_distinct_pairs) {
        auto fewer = with_most_distinct_pairs(problem(), timed, limits_.most_distinct_pairs);
        if (fewer) record(*std::move(fewer), strategy);
        return;
    }
    const auto begin = std::chrono::steady_clock::now();
    OPTPIPE_EXPECT(is_valid(problem(), timed), "search_state: an invalid schedule");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    shared_->pass_seconds.store(taken.count(), std::memory_order_relaxed);
    auto candidate = std::make_shared<const schedule>(reduced(std::move(timed)));
    const auto value = value_of(problem(), *candidate);
    const std::scoped_lock lock{shared_->mutex};
    if (!is_improvement(value)) return;
    // If a valid schedule has an objective below the bound, the bound is wrong.
    const bool refutes = value.objective < bound() - 2.0 * slack();
    const double before = gap();
    const auto least = std::min(value.objective, objective());
    shared_->incumbent = std::move(candidate);
    shared_->bound.store(refutes ? 0.0 : std::min(bound(), least).value());
    shared_->storage.store(value.storage.value(), std::memory_order_release);
    shared_->objective.store(least.value(), std::memory_order_release);
    note(strategy, before);
    OPTPIPE_EXPECT(!refutes, "search_state: a schedule below a bound");
}

OPTPIPE_INLINE void search_state::report_failure(const std::string& sentence) {
    const std::scoped_lock lock{shared_->mutex};
    auto& told = shared_->reported;
    if (std::find(told.begin(), told.end(), sentence) != told.end()) return;
    told.push_back(sentence);
    if (shared_->failures.warn) shared_->failures.warn(sentence);
}

OPTPIPE_INLINE double search_state::gap_closed() const {
    const std::scoped_lock lock{shared_->mutex};
    return gap_closed_;
}

OPTPIPE_INLINE double search_state::gap() const {
    if (objective().is_unlimited() || objective() <= duration{}) return 1.0;
    return std::max(0.0, relative_gap(objective(), bound()));
}

OPTPIPE_INLINE void search_state::note(std::string_view strategy, double gap_before) {
    if (gap_before > 0.0) gap_closed_ += std::max(0.0, (gap_before - gap()) / gap_before);
    shared_->history.push_back(
        {strategy_.empty() ? std::string{strategy} : strategy_, seconds(), objective(), bound()});
    if (shared_->observe) shared_->observe({shared_->history.back(), shared_->incumbent});
}

} // namespace optpipe
#endif
