#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// When a search has to end, all that is set at once.
struct search_limits {
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop{};
    /// (objective − bound) / objective that is good enough. At 0 the search goes on to the proof.
    double gap = 0.0;
};

/// One step on the way to a plan: who made it, when, and what was known from then on.
struct search_step {
    std::string part;
    double seconds = 0.0;
    /// Unlimited before the first schedule.
    duration objective{};
    duration bound{};
};

/// What all parts of a search share: the best schedule, the best proven bound, and whether to go on.
///
/// Every member may be called from any thread; `objective`, `bound` and `done` cost an atomic load and a clock. A part
/// offers what it finds under its name, compares with what others found, and returns once `done()`.
class search_board {
public:
    using observer = std::function<void(const search_step&)>;

    /// `observe` is called at every step, one call at a time.
    explicit search_board(problem p, search_limits limits = {}, observer observe = {})
        : problem_{std::move(p)}, limits_{std::move(limits)}, observe_{std::move(observe)},
          begin_{std::chrono::steady_clock::now()}, slack_{tolerance{}.at(problem_.serial_time())} {}
    search_board(const search_board&) = delete;
    search_board& operator=(const search_board&) = delete;

    [[nodiscard]] const optpipe::problem& to_solve() const { return problem_; }

    /// Gives the order its times and keeps it if it is better. Its objective; unlimited if it isn't executable within
    /// the limits of memory.
    duration offer(const order& candidate, std::string_view part) {
        auto timed = time_order(problem_, candidate);
        if (!timed) return duration::unlimited();
        const auto value = objective_of(problem_, *timed);
        keep(*std::move(timed), value, part);
        return value;
    }
    /// The same for a valid schedule; times that `time_order` improves are improved.
    duration offer(const schedule& candidate, std::string_view part) {
        const auto value = objective_of(problem_, candidate);
        if (!(value < objective())) return value;
        auto timed = time_order(problem_, order_of(candidate));
        if (timed && objective_of(problem_, *timed) <= value) {
            const auto better = objective_of(problem_, *timed);
            keep(*std::move(timed), better, part);
            return better;
        }
        keep(candidate, value, part);
        return value;
    }
    /// `proven`: no valid schedule has a smaller objective; unlimited: there is none at all.
    void raise_bound(duration proven, std::string_view part) {
        if (!(proven > bound())) return;
        const std::scoped_lock lock{mutex_};
        if (!(proven > bound())) return;
        OPTPIPE_EXPECT(!incumbent_ || proven <= objective() + 2.0 * slack_, "search_board: a bound above a schedule");
        bound_.store(std::min(proven, objective()).value());
        note(part);
    }

    /// Unlimited before the first schedule.
    [[nodiscard]] duration objective() const { return duration{objective_.load(std::memory_order_acquire)}; }
    [[nodiscard]] duration bound() const { return duration{bound_.load(std::memory_order_acquire)}; }
    /// The best schedule; null before the first.
    [[nodiscard]] std::shared_ptr<const schedule> incumbent() const {
        const std::scoped_lock lock{mutex_};
        return incumbent_;
    }
    /// What is to be beaten: a schedule that isn't shorter than this is of no use.
    [[nodiscard]] duration target() const { return objective() - slack_; }
    /// How far two times may lie apart and still be equal.
    [[nodiscard]] duration slack() const { return slack_; }

    /// Whether objective and bound have met, up to rounding.
    [[nodiscard]] bool proven() const { return objective() - bound() <= slack_ || bound().is_unlimited(); }
    /// Whether all that was asked for is reached, time is up, or somebody asked to stop.
    [[nodiscard]] bool done() const {
        return proven() || objective() - bound() <= limits_.gap * objective() || limits_.stop.stop_requested() ||
               std::chrono::steady_clock::now() >= limits_.deadline;
    }
    [[nodiscard]] const search_limits& limits() const { return limits_; }
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    [[nodiscard]] std::vector<search_step> history() const {
        const std::scoped_lock lock{mutex_};
        return history_;
    }

private:
    void keep(schedule timed, duration value, std::string_view part) {
        if (!(value < objective())) return;
        auto candidate = std::make_shared<const schedule>(std::move(timed));
        const std::scoped_lock lock{mutex_};
        if (!(value < objective())) return;
        OPTPIPE_EXPECT(value >= bound() - 2.0 * slack_, "search_board: a schedule below a bound");
        incumbent_ = std::move(candidate);
        bound_.store(std::min(bound(), value).value());
        objective_.store(value.value(), std::memory_order_release);
        note(part);
    }
    void note(std::string_view part) {
        history_.push_back({std::string{part}, seconds(), objective(), bound()});
        if (observe_) observe_(history_.back());
    }

    const optpipe::problem problem_;
    search_limits limits_;
    observer observe_;
    std::chrono::steady_clock::time_point begin_;
    duration slack_;
    std::atomic<double> objective_{duration::unlimited().value()};
    std::atomic<double> bound_{0.0};
    mutable std::mutex mutex_;
    std::shared_ptr<const schedule> incumbent_;
    std::vector<search_step> history_;
};

} // namespace optpipe
