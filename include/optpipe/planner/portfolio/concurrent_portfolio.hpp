#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// How the concurrent portfolio shares time. Not tuned, unless a comment says otherwise.
struct time_share_parameters {
    /// If only one strategy closes the gap, its share is multiplied by 1 + `reward`. With a higher reward, strategies
    /// that close parts of the gap get more time sooner. With too high a reward, strategies with a late first result
    /// get too little time.
    double reward = 10.0;
    /// A time in seconds. Let t be the sum of `staleness_seconds` and the time until a strategy's last result. After a
    /// time of n · t without another result, the strategy's share is divided by n + 1. A strategy that resumes its
    /// search keeps its share: each slice brings its proof nearer. On store-p3-m6-k150 with two threads and six seeds,
    /// proofs took 7.5 s on average and 10 s at most. With undivided shares, proofs took 11 s on average and 21 s at
    /// most. With a value of 0.3, proofs took 8.5 s on average and 11 s at most. Divided shares were also tried on
    /// eighty random problems with 3 and 5 s on one thread. With divided shares, 11 plans were better and 12 worse,
    /// with 0.02 % lower objectives on average. The same 25 plans were proven optimal.
    double staleness_seconds = 1.0;
    /// A slice with more effort is idle if it takes less than `idle_factor` times as long as the previous slice. An
    /// idle slice has used none of the additional effort. After `most_idle_slices` idle slices in a row, the strategy
    /// rests until there is a better incumbent. The factor is larger than the noise of a loaded machine.
    double idle_factor = 1.3;
    std::size_t most_idle_slices = 2;
    /// The least and largest growth of the effort from slice to slice. For strategies that start anew with the same
    /// seed, the least growth is `restarting_growth`. With a growth of 4, all earlier slices together take at most a
    /// third of the last slice's time.
    double least_growth = 2.0;
    double restarting_growth = 4.0;
    double most_growth = 16.0;
    /// A slice takes at most the remaining time, multiplied by `rest_per_share` and by the strategy's time share. A
    /// time share above `most_shares` counts as `most_shares`.
    double rest_per_share = 0.5;
    double most_shares = 2.0;
    /// A slice is interrupted after this multiple of its expected time, but not before `least_seconds`.
    double time_factor = 8.0;
    double least_seconds = 0.5;
};

/// Options of the concurrent portfolio.
struct concurrent_options {
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    /// The length of the first time slices, in seconds. Later slices are longer.
    double slice_seconds = 0.1;
    time_share_parameters with{};
};

/// Runs the strategies on all threads until the search is done or no strategy has anything left to try. Strategies
/// share their results at once. Strategies that close the gap get more time.
///
/// Runs on the threads of the caller's arena. If a strategy throws, all other strategies are asked to stop, and the
/// exception is rethrown. If failures are dropped, a `contract_error` ends only the call that threw it.
void run_concurrent_portfolio(search_state& state, const std::vector<any_search_strategy>& strategies,
                              const concurrent_options& options, run_log& log);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/deadline.hpp"
#include "optpipe/parallel/workers.hpp"
#include "optpipe/planner/portfolio/linked_stop.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace optpipe {
namespace detail {

/// The time shares of the strategies, and the next time slice.
///
/// The method is start-time fair queueing (Goyal, Vin and Cheng 1997). The next slice goes to the strategy whose slice
/// begins first in virtual time. Virtual time passes more slowly for strategies with larger weights. The weight grows
/// with the share of the gap closed per second, relative to other strategies. Recent gains count more. The weight falls
/// while the strategy closes no part of the gap. Each slice of a strategy has more effort than the previous slice. A
/// strategy that is neither randomized nor cooperative has one slice at a time. A strategy that isn't randomized pauses
/// if more effort has no effect, until there is a better incumbent. A strategy is started only if its shortest slice
/// would end before the deadline.
class time_shares {
public:
    struct time_slice {
        /// Index of the strategy among the applicable strategies.
        std::size_t index = 0;
        const any_search_strategy* strategy = nullptr;
        strategy_options options{};
        double weight = 1.0;
        double expected_seconds = 0.0;
    };

    time_shares(const search_state& state, const std::vector<any_search_strategy>& strategies,
                const concurrent_options& options)
        : state_{state}, options_{options} {
        for (const auto& strategy : strategies) {
            entry e;
            e.traits = strategy.traits(state.problem());
            if (!e.traits.applicable) continue;
            OPTPIPE_EXPECT(e.traits.share > 0.0, "search strategy: its share of time is above 0");
            e.strategy = &strategy;
            e.effort = std::max<std::size_t>(1, e.traits.first_effort);
            e.expected_seconds = options.slice_seconds;
            entries_.push_back(e);
        }
    }

    /// Returns the next time slice. Empty if the search is over. Waits until there is a strategy that may start. A
    /// strategy can't start if it is running or would end too late.
    std::optional<time_slice> next() {
        constexpr std::chrono::milliseconds poll_interval{20};
        std::unique_lock lock{mutex_};
        for (;;) {
            if (state_.done() || failed_) return std::nullopt;
            if (auto* e = least_served()) return start_slice(*e);
            const bool only_late = std::any_of(entries_.begin(), entries_.end(),
                                               [&](const entry& e) { return has_more(e) && is_too_late(e); });
            if (only_late)
                changed_.wait_for(lock, poll_interval);
            else if (running_ == 0)
                return std::nullopt;
            else
                changed_.wait(lock);
        }
    }
    /// Records a slice that has ended. `closed` is the part of the gap that the slice closed. `cut` tells whether the
    /// slice was interrupted. If the slice failed (`sound` is false), its strategy rests until there is a better
    /// incumbent.
    void finish(const time_slice& t, double seconds, double closed, bool cut, bool sound) {
        const std::scoped_lock lock{mutex_};
        auto& e = entries_[t.index];
        --running_;
        --e.running;
        const double now = state_.seconds();
        e.closed += now * closed;
        e.taken += now * seconds;
        e.spent += seconds;
        if (closed > 0.0) e.fruitful = e.spent;
        // The slice's time, divided by the strategy's current weight, replaces the expected charge.
        e.begins += seconds / weight(e) - t.expected_seconds / t.weight;
        schedule_next(e, t, seconds, cut);
        if (!sound) e.paused_at = state_.objective();
        changed_.notify_all();
    }
    void fail() {
        const std::scoped_lock lock{mutex_};
        failed_ = true;
        --running_;
        changed_.notify_all();
    }

private:
    struct entry {
        const any_search_strategy* strategy = nullptr;
        strategy_traits traits{};
        std::size_t running = 0;
        std::size_t started = 0;
        std::size_t effort = 1;
        double expected_seconds = 0.0;
        /// Virtual time at which the strategy's next slice starts.
        double begins = 0.0;
        /// `closed` is the sum of the parts of the gap that the strategy's slices closed. `taken` is the sum of the
        /// durations of the strategy's slices, in seconds. Slices that ended later have larger weights in `closed` and
        /// `taken`.
        double closed = 0.0;
        double taken = 0.0;
        /// `spent` is the total duration of the strategy's slices, in seconds. `fruitful` is the part of `spent` until
        /// the end of the last slice that closed a part of the gap.
        double spent = 0.0;
        double fruitful = 0.0;
        /// The incumbent's objective when the pause began, if the strategy is paused. The pause ends when there is a
        /// better incumbent.
        std::optional<duration> paused_at{};
        std::size_t last_effort = 0;
        double last_seconds = 0.0;
        double shortest_seconds = 0.0;
        /// Number of consecutive slices with more effort than the previous slice, but no more time.
        std::size_t idle_slices = 0;
    };

    [[nodiscard]] static double rate(const entry& e) { return e.taken > 0.0 ? e.closed / e.taken : 0.0; }
    [[nodiscard]] double weight(const entry& e) const {
        double all = 0.0;
        for (const auto& other : entries_)
            all += rate(other);
        return e.traits.share * (1.0 + (all > 0.0 ? options_.with.reward * rate(e) / all : 0.0)) / staleness(e);
    }
    /// Measures the time since the strategy's last result. The measure is 1 right after a result, and grows from then
    /// on.
    [[nodiscard]] double staleness(const entry& e) const {
        if (e.traits.resumes) return 1.0;
        return (options_.with.staleness_seconds + e.spent) / (options_.with.staleness_seconds + e.fruitful);
    }
    /// Whether the strategy could start if there were enough time.
    [[nodiscard]] bool has_more(const entry& e) const {
        if (e.running > 0 && !e.traits.randomized && !e.traits.cooperative) return false;
        return !e.paused_at || state_.objective() < *e.paused_at - state_.slack();
    }
    [[nodiscard]] bool is_too_late(const entry& e) const {
        if (e.shortest_seconds > 0.0) return e.shortest_seconds > state_.seconds_left();
        return !state_.has_time_for(e.traits.least_passes);
    }
    entry* least_served() {
        entry* next = nullptr;
        for (auto& e : entries_)
            if (has_more(e) && !is_too_late(e) && (!next || e.begins < next->begins)) next = &e;
        return next;
    }
    time_slice start_slice(entry& e) {
        const auto index = static_cast<std::size_t>(&e - entries_.data());
        const auto seed = options_.seed + (e.traits.randomized || e.traits.cooperative ? e.started : 0);
        const strategy_options options{seed, e.effort, 1};
        const time_slice t{index, e.strategy, options, weight(e), e.expected_seconds};
        ++e.started;
        ++e.running;
        ++running_;
        // A strategy that has paused doesn't get additional time to make up for the pause.
        virtual_time_ = std::max(virtual_time_, e.begins);
        e.begins = virtual_time_ + t.expected_seconds / t.weight;
        return t;
    }
    /// Sets the effort of the next slice, or pauses the strategy if more effort has no effect.
    void schedule_next(entry& e, const time_slice& t, double seconds, bool cut) const {
        const auto& with = options_.with;
        const bool more_effort = e.last_effort > 0 && t.options.effort >= 2 * e.last_effort;
        const bool idle = !e.traits.randomized && !cut && more_effort && seconds < with.idle_factor * e.last_seconds;
        e.idle_slices = idle ? e.idle_slices + 1 : 0;
        e.paused_at.reset();
        const bool exhausted = !cut && t.options.effort == max_effort; // the slice ended although it had effort left
        if (e.idle_slices >= with.most_idle_slices || exhausted) e.paused_at = state_.objective();
        e.last_effort = t.options.effort;
        e.last_seconds = seconds;
        e.shortest_seconds = e.shortest_seconds > 0.0 ? std::min(e.shortest_seconds, seconds) : seconds;
        const bool repeats = !e.traits.randomized && !e.traits.resumes;
        const double least_growth = repeats ? with.restarting_growth : with.least_growth;
        const double wanted =
            std::clamp(options_.slice_seconds / std::max(seconds, shortest), least_growth, with.most_growth);
        // Only strategies with a large share may take all of the remaining time.
        const double part = with.rest_per_share * std::min(with.most_shares, e.traits.share);
        const double longest = std::max(options_.slice_seconds, part * state_.seconds_left());
        const double growth = std::min(wanted, std::max(1.0, longest / std::max(seconds, shortest)));
        const auto effort = scaled(t.options.effort, growth);
        if (effort < e.effort) return; // a concurrent slice has already raised the effort
        e.effort = effort;
        e.expected_seconds = seconds * growth;
    }
    static std::size_t scaled(std::size_t effort, double factor) {
        const double product = static_cast<double>(effort) * factor;
        return product >= static_cast<double>(max_effort) ? max_effort : static_cast<std::size_t>(product);
    }
    static constexpr double shortest = 1e-9;
    static constexpr auto max_effort = std::numeric_limits<std::size_t>::max();

    const search_state& state_;
    concurrent_options options_;
    std::mutex mutex_{};
    std::condition_variable changed_{};
    std::vector<entry> entries_{};
    double virtual_time_ = 0.0; ///< start of the latest slice in virtual time
    std::size_t running_ = 0;
    bool failed_ = false;
};

/// The time at which a slice is interrupted because it takes much longer than expected.
inline std::chrono::steady_clock::time_point deadline_of(const search_state& state, const time_shares::time_slice& t,
                                                         const time_share_parameters& with) {
    const std::chrono::duration<double> length{std::max(with.time_factor * t.expected_seconds, with.least_seconds)};
    return std::min(state.limits().deadline, deadline_after(std::chrono::steady_clock::now(), length));
}

} // namespace detail

OPTPIPE_INLINE void run_concurrent_portfolio(search_state& state, const std::vector<any_search_strategy>& strategies,
                                             const concurrent_options& options, run_log& log) {
    detail::time_shares shares{state, strategies, options};
    linked_stop stop{state.limits().stop};
    const auto work = [&](std::size_t) {
        while (const auto slice = shares.next()) {
            const stopwatch watch;
            const auto& strategy = *slice->strategy;
            auto limits = state.limits();
            limits.deadline = deadline_of(state, *slice, options.with);
            limits.stop = stop.token();
            search_state view{state, std::move(limits), strategy.name()};
            bool sound = false;
            try {
                sound = state.try_strategy(strategy.name(), [&] { strategy(view, slice->options); });
            } catch (...) {
                shares.fail();
                stop.request_stop();
                throw;
            }
            log.add(strategy.name(), watch.seconds());
            shares.finish(*slice, watch.seconds(), view.gap_closed(), view.done(), sound);
            if (state.done()) stop.request_stop();
        }
    };
    parallel::workers{options.threads, work}.run(options.threads);
}

} // namespace optpipe
#endif
