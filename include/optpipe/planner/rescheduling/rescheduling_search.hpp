#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/rescheduling/list_rescheduler.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace optpipe {

/// The random distributions of `rescheduling_search`. The search was measured alone, with half a second per schedule,
/// on the constructive planner's schedules of random problems (2 to 16 ranks, all features). The search made the
/// schedules 0.4 % shorter on average. With a third of the noises, 130 schedules became only 0.1 % shorter. With half
/// of the length, 40 schedules became 0.3 % shorter. Doubling the length, or halving or doubling the waits, made no
/// difference above 0.1 %.
struct rescheduling_parameters {
    /// Largest length of a rescheduled part. The length is the time of the steady state for this number of microbatches
    /// per rank. Warm-up and cool-down each have a length of about 1. Rescheduling a longer part makes the schedule
    /// worse more often.
    double most_per_rank = 1.6;
    /// Lengths of the parts that the first sweeps reschedule, as shares of the longest part, in (0, 1]. Each length is
    /// tried with all waits, and the best schedule is kept.
    std::array<double, 8> parts{0.12, 0.25, 0.37, 0.5, 0.62, 0.75, 0.87, 1.0};
    std::array<double, 4> waits{0.0, 0.3, 0.6, 1.0};
    /// Parameters of the random trials after the sweeps. `most_wait` is the longest wait. The noises are multiples of
    /// the busiest rank's work on one microbatch.
    double most_wait = 1.2;
    std::array<double, 4> noises{0.0, 0.3, 1.0, 3.0};
    /// Typical number of operations that are examined to choose the next one. A schedule with n times this number of
    /// examined operations counts as n schedules. Measured averages are 1 to 18 on problem files, and 30 to 55 with 16
    /// ranks of four stages, 64 microbatches and transfers. Without this rule, a plan of fixed effort would take twice
    /// as long for problems with averages of 30 to 55.
    std::size_t usual_visits = 20;
};

struct rescheduling_options {
    std::uint64_t seed = 1;
    /// Limit on the number of schedules that are made. Some schedules count as several (`usual_visits`). If the search
    /// ends at this limit and runs alone, the result depends only on problem, start and seed.
    std::size_t trials = std::numeric_limits<std::size_t>::max();
    rescheduling_parameters with{};
};

namespace detail {

/// One run of the search, which starts from the incumbent.
class rescheduling_run {
public:
    rescheduling_run(search_state& state, const rescheduling_options& options)
        : state_{state}, p_{state.problem()}, options_{options}, random_{options.seed}, load_{p_.busiest_work()} {
        const auto microbatches = static_cast<double>(p_.graph.microbatches());
        longest_part_ =
            std::min(1.0, options.with.most_per_rank * static_cast<double>(p_.graph.ranks()) / microbatches);
    }

    void run() {
        for (bool gained = true; gained && may_go_on();) {
            const auto before = value_;
            sweep(false);
            sweep(true);
            gained = value_ < before - state_.slack();
        }
        while (may_go_on())
            attempt(draw());
    }

private:
    /// The parameters of a rescheduling, and whether it is for the beginning or the end of the schedule.
    struct trial {
        bool beginning = false;
        rescheduling how{};
    };

    /// Continues from another strategy's better incumbent, if any. Returns whether the search may go on.
    [[nodiscard]] bool may_go_on() {
        if (trials_ >= options_.trials || state_.done()) return false;
        const auto best = state_.incumbent();
        if (best && state_.objective() < value_ - state_.slack()) adopt(*best);
        return ends_[0].has_value();
    }
    void adopt(const schedule& found) {
        for (auto& each : ends_)
            each.reset();
        value_ = objective_of(p_, found);
        end_ = last_end(found);
        for (const bool beginning : {false, true})
            ends_[beginning ? 1 : 0].emplace(p_, found, beginning);
    }

    /// Tries a grid of parameters and adopts the best schedule. Adopting schedules one by one, with random parameters,
    /// gains less.
    void sweep(bool beginning) {
        const auto noise = draw().how.noise;
        std::optional<schedule> best;
        auto least = value_;
        for (const double part : options_.with.parts)
            for (const double wait : options_.with.waits) {
                if (!may_go_on()) break;
                auto found = make({beginning, {(1.0 - longest_part_ * part) * end_, wait, noise}});
                const auto value = found ? objective_of(p_, *found) : least;
                if (!(value < least)) continue;
                least = value;
                best = *std::move(found);
            }
        if (best && least < value_) offer(*std::move(best));
    }
    [[nodiscard]] trial draw() {
        trial t;
        t.beginning = random_.below(2) == 1;
        t.how.kept = (1.0 - longest_part_ * random_.share()) * end_;
        t.how.wait = options_.with.most_wait * random_.share();
        t.how.noise = options_.with.noises[random_.below(options_.with.noises.size())] * load_;
        return t;
    }
    /// Adopts the trial's schedule if it is no worse than the current schedule. Equally good schedules are adopted
    /// because they lead to new schedules.
    void attempt(const trial& t) {
        if (auto found = make(t); found && objective_of(p_, *found) <= value_) offer(*std::move(found));
    }
    [[nodiscard]] std::optional<schedule> make(const trial& t) {
        auto& end = *ends_[t.beginning ? 1 : 0];
        const auto length = end.run(t.how, random_, stop_check{state_.limits().stop, state_.limits().deadline});
        trials_ += 1 + end.visits_per_operation() / options_.with.usual_visits;
        if (length.is_unlimited()) return std::nullopt;
        if (p_.objective == objective_kind::makespan && length > end_ + state_.slack()) return std::nullopt;
        auto timed = time_order(p_, end.made(), stop_check{state_.limits().abandon});
        if (!timed) return std::nullopt;
        return *std::move(timed);
    }
    void offer(schedule found) {
        adopt(found);
        if (value_ < state_.target()) state_.offer_timed(std::move(found), name);
    }

    static constexpr std::string_view name = "reschedule";

    search_state& state_;
    const problem& p_;
    rescheduling_options options_;
    random_numbers random_;
    /// The work of the busiest rank on one microbatch.
    duration load_{};
    /// The longest part to reschedule, as a share of the step.
    double longest_part_ = 1.0;
    std::size_t trials_ = 0;
    /// The reschedulers for the end and the beginning of the current schedule, and the schedule's objective and length.
    std::array<std::optional<list_rescheduler>, 2> ends_{};
    duration value_ = duration::unlimited();
    duration end_{};
};

} // namespace detail

/// Reschedules the beginning or the end of the incumbent by list scheduling with random parameters and priorities.
/// Continues from schedules that are no worse. Every stash keeps its storage option.
///
/// Single-threaded. Does nothing without a schedule to start from.
inline void rescheduling_search(search_state& state, const rescheduling_options& options = {}) {
    detail::rescheduling_run{state, options}.run();
}

} // namespace optpipe
