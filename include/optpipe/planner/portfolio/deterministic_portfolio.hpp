#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe {

/// Options of the deterministic portfolio.
struct deterministic_options {
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    std::size_t batches = std::numeric_limits<std::size_t>::max();
    /// The growth of the effort from batch to batch. With a growth of 4, all earlier batches together do a third of the
    /// work of the last batch. Not tuned.
    std::size_t growth = 4;
    /// Number of runs of a randomized strategy in a batch. Each run has its own seed. The default is one run for each
    /// of two threads. Not tuned.
    std::size_t copies = 2;
};

namespace detail {

/// Number of batches at the start that leave out slow strategies. Without a time limit, no batches with slow strategies
/// run, and the search takes about a second.
inline constexpr std::size_t short_batches = 3;

} // namespace detail

/// Runs all strategies in batches of growing effort, until the search is done or no batch is left. Strategies exchange
/// results only between batches. The same seed gives the same results on any number of threads, unless the time limit
/// or a stop request interrupts the search. Strategies whose effort is timed are left out. Results are merged in the
/// order of `strategies`: put strategies with quick proofs first.
///
/// Runs on the threads of the caller's arena. An exception of a strategy is rethrown. If failures are dropped, a
/// `contract_error` ends only the call that threw it.
void run_deterministic_portfolio(search_state& state, const std::vector<any_search_strategy>& strategies,
                                 const deterministic_options& options, run_log& log);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/parallel/workers.hpp"
#include "optpipe/planner/portfolio/linked_stop.hpp"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace optpipe {
namespace detail {

/// The jobs of one batch. Each job has its own state, which starts with the results of earlier batches. Results are
/// merged in the order of the jobs. A job that settles the search stops all later jobs, and their results are dropped.
/// The result is the same on any number of threads.
class portfolio_batch {
public:
    struct job {
        const any_search_strategy* strategy = nullptr;
        strategy_options options{};
        double least_passes = 0.0;
    };

    portfolio_batch(search_state& state, std::vector<job> jobs)
        : state_{state}, start_{state.incumbent()}, bound_{state.bound()}, jobs_{std::move(jobs)},
          found_(jobs_.size()), settled_{jobs_.size()} {
        for (std::size_t k = 0; k < jobs_.size(); ++k)
            stops_.push_back(std::make_unique<linked_stop>(state.limits().stop));
    }

    void run(std::size_t threads, run_log& log) {
        const auto one = [&](std::size_t k) { run_job(k, log); };
        parallel::workers{jobs_.size(), one}.run(threads);
        for (std::size_t k = 0; k < jobs_.size() && k <= settled_; ++k) {
            state_.try_strategy(jobs_[k].strategy->name(), [&] {
                if (found_[k].incumbent) state_.offer(*found_[k].incumbent, jobs_[k].strategy->name());
                state_.raise_bound(found_[k].bound, jobs_[k].strategy->name());
            });
        }
    }

private:
    struct findings {
        std::shared_ptr<const schedule> incumbent{};
        duration bound{};
    };

    void run_job(std::size_t k, run_log& log) {
        const auto& strategy = *jobs_[k].strategy;
        if (settled_ < k || state_.done() || !state_.has_time_for(jobs_[k].least_passes)) return;
        const stopwatch watch;
        auto limits = state_.limits();
        limits.stop = stops_[k]->token();
        search_state own{state_.problem(), std::move(limits)};
        if (start_) own.offer(*start_, strategy.name());
        own.raise_bound(bound_, strategy.name());
        try {
            // Results that a strategy offers before a failure are kept.
            state_.try_strategy(strategy.name(), [&] { strategy(own, jobs_[k].options); });
        } catch (...) {
            for (auto& stop : stops_)
                stop->request_stop();
            throw;
        }
        found_[k] = {own.incumbent(), own.bound()};
        if (own.settled()) settle(k);
        log.add(strategy.name(), watch.seconds());
    }
    void settle(std::size_t k) {
        auto first = settled_.load();
        while (k < first && !settled_.compare_exchange_weak(first, k)) {
        }
        for (auto j = k + 1; j < stops_.size(); ++j)
            stops_[j]->request_stop();
    }

    search_state& state_;
    std::shared_ptr<const schedule> start_;
    duration bound_;
    std::vector<job> jobs_;
    std::vector<findings> found_;
    std::vector<std::unique_ptr<linked_stop>> stops_{};
    std::atomic<std::size_t> settled_;
};

/// The effort of a strategy in a batch, or 0 if the strategy doesn't run. A slow strategy (with `first` = 0) doesn't
/// run in the first batches.
inline std::size_t effort_of(std::size_t first, std::size_t batch, std::size_t factor) {
    if (first == 0) return batch < short_batches ? 0 : factor;
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    return first > most / factor ? most : first * factor;
}

} // namespace detail

OPTPIPE_INLINE void run_deterministic_portfolio(search_state& state, const std::vector<any_search_strategy>& strategies,
                                                const deterministic_options& options, run_log& log) {
    OPTPIPE_EXPECT(options.growth > 0, "deterministic_portfolio: the effort grows by a factor above 0");
    const auto& p = state.problem();
    std::size_t factor = 1;
    for (std::size_t batch = 0; batch < options.batches && !state.done(); ++batch) {
        std::vector<detail::portfolio_batch::job> jobs;
        for (const auto& strategy : strategies) {
            const auto traits = strategy.traits(p);
            if (traits.timed || !traits.applicable) continue;
            const auto effort = detail::effort_of(traits.first_effort, batch, factor);
            if (effort == 0) continue;
            const auto copies = traits.randomized ? options.copies : 1;
            for (std::size_t copy = 0; copy < copies; ++copy) {
                const auto seed = options.seed + (traits.randomized ? batch * copies + copy : 0);
                jobs.push_back({&strategy, {seed, effort, 1}, traits.least_passes});
            }
        }
        if (jobs.empty() && batch >= detail::short_batches) return;
        if (!jobs.empty()) detail::portfolio_batch{state, std::move(jobs)}.run(options.threads, log);
        if (factor <= std::numeric_limits<std::size_t>::max() / options.growth) factor *= options.growth;
    }
}

} // namespace optpipe
#endif
