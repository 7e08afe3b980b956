#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/robust_options.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/noise.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {

/// How `robust_planner` searches. Not tuned.
struct robust_parameters {
    /// Shares of the time, in (0, 1), for the plan without noise and for the plan with slack between ranks. All later
    /// searches begin with the plan without noise.
    double nominal_share = 0.5;
    double protected_share = 0.2;
    /// Number of schedules that are ranked by percentile. The candidates are the last (and best) schedules of the plan
    /// without noise and of the plan with slack.
    std::size_t most_candidates = 12;
    /// A move takes a computation past at most this number of computations on its rank.
    std::size_t farthest_move = 3;
    /// A rejected move is assumed to need 1 / `samples_per_look` of the samples on average.
    std::size_t samples_per_look = 10;
    /// Number of random steps that confirm the result, as a multiple of `samples`. The confirmation has at least
    /// `least_confirmation` steps, and takes at most `confirmation_share` of the time limit.
    std::size_t confirmation = 10;
    double confirmation_share = 0.1;
    std::size_t least_confirmation = 20;
    /// Least relative gain in the percentile. A smaller gain may be a sampling error.
    double least_gain = 1e-3;
};

namespace detail {

/// Improves the percentile of an order's step time by moving computations on their rank. All orders are compared in the
/// same random steps. The best order's slowest steps come first: most moves are rejected after a few steps.
class robust_improver {
public:
    /// `stop` is polled before each sample.
    robust_improver(const problem& p, const robust_options& options, stop_check stop)
        : problem_{p}, options_{options}, stop_{stop}, within_{percentile_rank(options.samples, options.percentile)},
          sequence_(options.samples) {
        std::iota(sequence_.begin(), sequence_.end(), std::size_t{0});
    }

    /// Accepts the order if its percentile is below that of the best order. If percentiles are equal, the lower mean
    /// decides: many moves change little in the slowest steps. Returns whether the order was accepted. Contract:
    /// `simulate` finds no fault in the order.
    bool offer(const order& candidate) {
        const noisy_order prepared{problem_, candidate};
        std::vector<duration> times(options_.samples);
        std::size_t exceeding = 0;
        for (const auto k : sequence_) {
            if (stop_()) return false;
            times[k] = prepared.step_time(options_.noise, k);
            if (times[k] > best_percentile_ && ++exceeding > options_.samples - within_) return false;
        }
        const auto percentile = percentile_of(times, options_.percentile);
        const auto mean = mean_of(times);
        if (percentile == best_percentile_ && !(mean < best_mean_)) return false;
        best_ = candidate;
        best_percentile_ = percentile;
        best_mean_ = mean;
        std::sort(sequence_.begin(), sequence_.end(),
                  [&](std::size_t a, std::size_t b) { return times[a] != times[b] ? times[a] > times[b] : a < b; });
        return true;
    }
    /// Tries `moves` random moves, and calls `pause()` before each. Contract: there is a best order.
    template <class Pause> void improve(std::size_t moves, random_numbers random, const Pause& pause) {
        for (std::size_t i = 0; i < moves && !stop_(); ++i) {
            pause();
            if (const auto moved = neighbour(random); moved && simulate(problem_, *moved)) offer(*moved);
        }
    }
    /// The best order, or null before the first accepted order.
    [[nodiscard]] const order* best() const { return best_.operations.empty() ? nullptr : &best_; }

private:
    /// A copy of the best order, with one computation moved past up to `farthest_move` computations on its rank.
    [[nodiscard]] std::optional<order> neighbour(random_numbers& random) const {
        const auto& ops = best_.operations;
        const auto first = random.below(ops.size());
        auto distance = random.between(1, with_.farthest_move);
        const bool forth = random.chance(half);
        if (is_transfer(ops[first].kind)) return std::nullopt;
        auto last = first;
        while (distance > 0 && ++last < ops.size())
            if (!is_transfer(ops[last].kind) && problem_.rank_of(ops[last].stage) == problem_.rank_of(ops[first].stage))
                --distance;
        if (distance > 0) return std::nullopt;
        auto moved = best_;
        const auto begin = moved.operations.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end = moved.operations.begin() + static_cast<std::ptrdiff_t>(last) + 1;
        std::rotate(begin, forth ? begin + 1 : end - 1, end);
        return moved;
    }

    static constexpr unsigned half = 50; ///< percent
    static constexpr robust_parameters with_{};

    const problem& problem_;
    const robust_options& options_;
    stop_check stop_;
    std::size_t within_;
    /// The random steps, sorted by the best order's step time, the slowest first.
    std::vector<std::size_t> sequence_;
    order best_{};
    duration best_percentile_ = duration::unlimited();
    duration best_mean_ = duration::unlimited();
};

/// Adds the standard deviation of a forward to the duration of each message. Schedules of this problem have slack
/// between ranks (temporal protection; Gao, Building Robust Schedules Using Temporal Protection, 1995).
inline problem with_protection(problem p, const noise_model& noise) {
    duration forwards{};
    for (const auto& costs : p.costs)
        forwards += costs.forward;
    const auto slack = noise.spread * forwards / static_cast<double>(p.costs.size());
    bounded_vector<duration, dynamic> hops;
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            hops.push_back(p.p2p(a, b) + (a == b ? duration{} : slack));
    p.p2p = hop_times<>{p.graph.ranks(), std::move(hops)};
    return p;
}

/// Step times of two orders, in the same random steps.
struct compared_times {
    std::vector<duration> first{};
    std::vector<duration> second{};
};

/// Computes the step times of the two orders in `count` random steps. After a stop request, at least `least` steps are
/// used.
inline compared_times compare_orders(const problem& p, const order& first, const order& second,
                                     const noise_model& noise, std::size_t count, std::size_t least, stop_check stop) {
    const noisy_order one{p, first};
    const noisy_order other{p, second};
    compared_times times;
    for (std::size_t k = 0; k < count && !(k >= least && stop.is_requested()); ++k) {
        times.first.push_back(one.step_time(noise, k));
        times.second.push_back(other.step_time(noise, k));
    }
    return times;
}

/// Plans for a percentile, until `end`. The planner plans the problem without noise, and then with slack between ranks.
/// The best schedules are ranked by their percentiles in the same random steps. Improves the best schedule by moves
/// that lower the percentile. Returns the improved schedule if it is better than the reference in further random steps.
/// If the improved schedule isn't confirmed, returns the reference. The reference is the start or, without a start, the
/// plan without noise.
template <class Plan> class robust_planner {
public:
    using clock = std::chrono::steady_clock;

    robust_planner(const problem& p, const plan_options& options, clock::time_point end, const Plan& plan_nominally)
        : p_{p}, options_{options}, robust_{*options.robust}, end_{end}, plan_nominally_{plan_nominally} {}

    outcome<plan_result> run() {
        auto nominal = plan_without_noise();
        if (!nominal) return nominal;
        auto result = *std::move(nominal);
        if (!options_.stop.stop_requested()) plan_with_slack(result.schedule);
        found_.push_back(std::make_shared<const schedule>(result.schedule));
        reference_ = options_.start ? *retime(p_, *options_.start) : result.schedule;
        reference_order_ = order_of(reference_);
        const auto confirming = reserve_confirmation();
        const auto best = improve();
        return conclude(std::move(result), best, confirming);
    }

private:
    using seconds = std::chrono::duration<double>;

    [[nodiscard]] std::optional<seconds> time_until(double share) const {
        if (!options_.time_limit) return std::nullopt;
        return std::max(seconds{0.0}, share * *options_.time_limit - seconds{clock::now() - begin_});
    }
    void collect(const search_progress& step) {
        const std::scoped_lock lock{mutex_};
        if (!step.incumbent || (!found_.empty() && found_.back() == step.incumbent)) return;
        if (found_.size() == with_.most_candidates) found_.erase(found_.begin());
        found_.push_back(step.incumbent);
    }
    outcome<plan_result> plan_without_noise() {
        auto how = options_;
        how.robust.reset();
        how.time_limit = time_until(with_.nominal_share);
        how.progress = [this](const search_progress& step) {
            collect(step);
            if (options_.progress) options_.progress(step);
        };
        return plan_nominally_(p_, how);
    }
    void plan_with_slack(const schedule& nominal) {
        auto how = options_;
        how.robust.reset();
        how.start = nominal;
        how.cache.clear();
        how.time_limit = time_until(with_.nominal_share + with_.protected_share);
        how.progress = [this](const search_progress& step) { collect(step); };
        if (const auto with_slack = plan_nominally_(with_protection(p_, robust_.noise), how))
            found_.push_back(std::make_shared<const schedule>(with_slack->schedule));
    }
    /// Returns the number of confirming random steps, and reserves their time before `end_`.
    std::size_t reserve_confirmation() {
        const std::size_t wanted = with_.confirmation * robust_.samples;
        if (!is_timed()) return wanted;
        const auto begin = clock::now();
        static_cast<void>(noisy_order{p_, reference_order_}.step_time(robust_.noise, 0));
        const auto both = 2.0 * seconds{clock::now() - begin};
        const auto affordable = with_.confirmation_share * *options_.time_limit / both;
        const auto confirming = affordable < static_cast<double>(wanted)
                                    ? std::max(with_.least_confirmation, static_cast<std::size_t>(affordable))
                                    : wanted;
        end_ -= std::chrono::duration_cast<clock::duration>(static_cast<double>(confirming) * both);
        return confirming;
    }
    /// The order with the best percentile, or the reference if nothing is better.
    order improve() {
        robust_improver improver{p_, robust_, stop_check{options_.stop, end_}};
        improver.offer(reference_order_);
        for (const auto& candidate : found_)
            if (const auto timed = retime(p_, *candidate)) improver.offer(order_of(*timed));
        const auto per_move = reference_.operations.size() * (1 + robust_.samples / with_.samples_per_look);
        improver.improve(is_timed() ? std::numeric_limits<std::size_t>::max()
                                    : robust_.effort / std::max<std::size_t>(1, per_move),
                         random_numbers{options_.seed}, [this] {
                             if (options_.processor) options_.processor->pause_if_over(options_.stop, end_);
                         });
        return improver.best() ? *improver.best() : reference_order_;
    }
    /// Compares `best` with the reference in random steps that the search didn't use.
    outcome<plan_result> conclude(plan_result result, const order& best, std::size_t confirming) const {
        auto fresh = robust_.noise;
        fresh.seed = random_numbers{robust_.noise.seed}.next();
        const auto times = compare_orders(p_, reference_order_, best, fresh, confirming, with_.least_confirmation,
                                          stop_check{options_.stop});
        if (options_.stops_without_plan && options_.stop.stop_requested()) return was_stopped();
        robust_result numbers;
        numbers.nominal_objective = objective_of(p_, reference_);
        numbers.mean = numbers.nominal_mean = mean_of(times.first);
        numbers.percentile = numbers.nominal_percentile = percentile_of(times.first, robust_.percentile);
        const auto percentile = percentile_of(times.second, robust_.percentile);
        const bool is_better = percentile < (1.0 - with_.least_gain) * numbers.nominal_percentile;
        if (is_better) {
            numbers.mean = mean_of(times.second);
            numbers.percentile = percentile;
            result.method = "robust";
        } else if (options_.start) {
            result.method = start_method;
        }
        if (is_better || options_.start) {
            result.schedule = is_better ? *time_order(p_, best) : reference_;
            result.objective = objective_of(p_, result.schedule);
            result.gap = relative_gap(result.objective, result.bound);
            // The proof is for the step time without noise, not for the percentile.
            if (result.why == plan_end::optimal || result.why == plan_end::gap) result.why = plan_end::effort_spent;
        }
        if (options_.stop.stop_requested()) result.why = plan_end::stop_request;
        result.seconds = seconds{clock::now() - begin_}.count();
        result.robust = numbers;
        return result;
    }
    [[nodiscard]] bool is_timed() const { return end_ != clock::time_point::max(); }

    static constexpr robust_parameters with_{};
    const problem& p_;
    const plan_options& options_;
    const robust_options& robust_;
    clock::time_point end_;
    const Plan& plan_nominally_;
    const clock::time_point begin_ = clock::now();
    std::mutex mutex_{};
    std::vector<std::shared_ptr<const schedule>> found_{};
    /// The schedule to compare with. The reference is the start or, without a start, the plan without noise.
    schedule reference_{};
    order reference_order_{};
};

} // namespace detail
} // namespace optpipe
