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
        : all_{std::make_shared<knowledge>(std::move(p), std::move(observe))}, limits_{std::move(limits)} {}
    /// Another door to the same board: what is offered here is seen there, and the other way round. It has limits of
    /// its own in place of the other's, and enters all that comes through it in the history as `part`'s.
    search_board(const search_board& other, search_limits limits, std::string part)
        : all_{other.all_}, limits_{std::move(limits)}, part_{std::move(part)} {}
    search_board(const search_board&) = delete;
    search_board& operator=(const search_board&) = delete;

    [[nodiscard]] const optpipe::problem& to_solve() const { return all_->to_solve; }

    /// Gives the order its times and keeps it if it is better. Its objective; unlimited if it isn't executable within
    /// the limits of memory.
    duration offer(const order& candidate, std::string_view part) {
        auto timed = time_order(to_solve(), candidate);
        if (!timed) return duration::unlimited();
        const auto value = objective_of(to_solve(), *timed);
        keep(*std::move(timed), value, part);
        return value;
    }
    /// The same for a valid schedule; times that `time_order` improves are improved.
    duration offer(const schedule& candidate, std::string_view part) {
        const auto value = objective_of(to_solve(), candidate);
        if (!(value < objective())) return value;
        auto timed = time_order(to_solve(), order_of(candidate));
        if (timed && objective_of(to_solve(), *timed) <= value) {
            const auto better = objective_of(to_solve(), *timed);
            keep(*std::move(timed), better, part);
            return better;
        }
        keep(candidate, value, part);
        return value;
    }
    /// `proven`: no valid schedule has a smaller objective; unlimited: there is none at all.
    void raise_bound(duration proven, std::string_view part) {
        if (!(proven > bound())) return;
        const std::scoped_lock lock{all_->mutex};
        if (!(proven > bound())) return;
        OPTPIPE_EXPECT(!all_->incumbent || proven <= objective() + 2.0 * slack(),
                       "search_board: a bound above a schedule");
        all_->bound.store(std::min(proven, objective()).value());
        note(part);
    }

    /// Unlimited before the first schedule.
    [[nodiscard]] duration objective() const { return duration{all_->objective.load(std::memory_order_acquire)}; }
    [[nodiscard]] duration bound() const { return duration{all_->bound.load(std::memory_order_acquire)}; }
    /// The best schedule; null before the first.
    [[nodiscard]] std::shared_ptr<const schedule> incumbent() const {
        const std::scoped_lock lock{all_->mutex};
        return all_->incumbent;
    }
    /// What is to be beaten: a schedule that isn't shorter than this is of no use.
    [[nodiscard]] duration target() const { return objective() - slack(); }
    /// How far two times may lie apart and still be equal.
    [[nodiscard]] duration slack() const { return all_->slack; }

    /// Whether objective and bound have met, up to rounding.
    [[nodiscard]] bool proven() const { return objective() - bound() <= slack() || bound().is_unlimited(); }
    /// Whether all that was asked for is reached: the proof, or the gap.
    [[nodiscard]] bool settled() const { return proven() || objective() - bound() <= limits_.gap * objective(); }
    /// Whether it is settled, time is up, or somebody asked to stop.
    [[nodiscard]] bool done() const {
        return settled() || limits_.stop.stop_requested() || std::chrono::steady_clock::now() >= limits_.deadline;
    }
    [[nodiscard]] const search_limits& limits() const { return limits_; }
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - all_->begin).count();
    }
    [[nodiscard]] std::vector<search_step> history() const {
        const std::scoped_lock lock{all_->mutex};
        return all_->history;
    }

private:
    struct knowledge {
        knowledge(problem p, observer o)
            : to_solve{std::move(p)}, observe{std::move(o)}, begin{std::chrono::steady_clock::now()},
              slack{tolerance{}.at(to_solve.serial_time())} {}

        const optpipe::problem to_solve;
        const observer observe;
        const std::chrono::steady_clock::time_point begin;
        const duration slack;
        std::atomic<double> objective{duration::unlimited().value()};
        std::atomic<double> bound{0.0};
        mutable std::mutex mutex{};
        std::shared_ptr<const schedule> incumbent{};
        std::vector<search_step> history{};
    };

    void keep(schedule timed, duration value, std::string_view part) {
        if (!(value < objective())) return;
        auto candidate = std::make_shared<const schedule>(std::move(timed));
        const std::scoped_lock lock{all_->mutex};
        if (!(value < objective())) return;
        OPTPIPE_EXPECT(value >= bound() - 2.0 * slack(), "search_board: a schedule below a bound");
        all_->incumbent = std::move(candidate);
        all_->bound.store(std::min(bound(), value).value());
        all_->objective.store(value.value(), std::memory_order_release);
        note(part);
    }
    void note(std::string_view part) {
        all_->history.push_back({part_.empty() ? std::string{part} : part_, seconds(), objective(), bound()});
        if (all_->observe) all_->observe(all_->history.back());
    }

    std::shared_ptr<knowledge> all_;
    search_limits limits_;
    std::string part_{};
};

} // namespace optpipe
