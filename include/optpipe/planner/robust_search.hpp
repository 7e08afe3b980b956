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

/// How plans for a percentile are looked for. All were chosen when it was written; none has been tuned on its own.
struct robust_parameters {
    /// Of the time: most goes into the plan without noise, which the others begin from.
    double nominal_share = 0.5;
    double protected_share = 0.2;
    /// Schedules on the way to the plan without noise that are ranked: the latest, which are the best.
    std::size_t most_candidates = 12;
    /// A move takes a computation past so many others of its rank, at most.
    std::size_t farthest_move = 3;
    /// Of the samples a move is refused after one in so many, in the mean.
    std::size_t samples_per_look = 10;
    /// Times the samples of the search, in steps that played no part in it; or as many as a share of the time is enough
    /// for, but so many that percentiles say something.
    std::size_t confirmation = 10;
    double confirmation_share = 0.1;
    std::size_t least_confirmation = 20;
    /// Of the percentile: a smaller gain may be an error of sampling.
    double least_gain = 1e-3;
};

namespace detail {

/// Improves the percentile of one order's step time by moving computations past others of their rank. All orders are
/// compared under the same random steps; those that were slowest before come first, so that most moves are refused
/// after a few of them.
class robust_improver {
public:
    /// `stop` is asked before each sample.
    robust_improver(const problem& p, const robust_options& options, stop_check stop)
        : problem_{p}, options_{options}, stop_{stop}, within_{percentile_rank(options.samples, options.percentile)},
          sequence_(options.samples) {
        std::iota(sequence_.begin(), sequence_.end(), std::size_t{0});
    }

    /// Takes the order if its percentile is less than that of the best so far; or the same, and its mean less: many
    /// moves change little of the slowest steps. Contract: `simulate` takes it.
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
    /// Tries `moves` at random, and calls `pause()` before each. Contract: there is a best order.
    template <class Pause> void improve(std::size_t moves, random_numbers random, const Pause& pause) {
        for (std::size_t i = 0; i < moves && !stop_(); ++i) {
            pause();
            if (const auto moved = neighbour(random); moved && simulate(problem_, *moved)) offer(*moved);
        }
    }
    /// Null before the first.
    [[nodiscard]] const order* best() const { return best_.operations.empty() ? nullptr : &best_; }

private:
    /// The best order with one computation moved past one to three others of its rank, in either direction.
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
    /// Random steps, the slowest of the best order first.
    std::vector<std::size_t> sequence_;
    order best_{};
    duration best_percentile_ = duration::unlimited();
    duration best_mean_ = duration::unlimited();
};

/// The problem with messages that take longer by the standard deviation of a forward: its schedules leave that much
/// slack between ranks (temporal protection; Gao, Building Robust Schedules Using Temporal Protection, 1995).
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

/// Of `count` steps; after a stop request of `least` of them.
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

/// Plans for a percentile, until `end`. The problem is planned as if there were no noise, and again with slack between
/// ranks; the schedules that either finds on its way are ranked by the percentile under the same random steps. The best
/// of them is improved by moves that lower the percentile. It is returned if further random steps confirm that it is
/// better than the plan without noise, or the start if there is one; else that is returned.
template <class Plan>
outcome<plan_result> plan_robustly(const problem& p, const plan_options& options,
                                   std::chrono::steady_clock::time_point end, const Plan& plan_nominally) {
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;
    constexpr robust_parameters with;
    const auto begin = clock::now();
    const auto& robust = *options.robust;
    const auto time_until = [&](double share) -> std::optional<seconds> {
        if (!options.time_limit) return std::nullopt;
        return std::max(seconds{0.0}, share * *options.time_limit - seconds{clock::now() - begin});
    };

    std::mutex mutex;
    std::vector<std::shared_ptr<const schedule>> found;
    const auto collect = [&](const search_progress& step) {
        const std::scoped_lock lock{mutex};
        if (!step.incumbent || (!found.empty() && found.back() == step.incumbent)) return;
        if (found.size() == with.most_candidates) found.erase(found.begin());
        found.push_back(step.incumbent);
    };
    auto how = options;
    how.robust.reset();
    how.time_limit = time_until(with.nominal_share);
    how.progress = [&](const search_progress& step) {
        collect(step);
        if (options.progress) options.progress(step);
    };
    auto nominal = plan_nominally(p, how);
    if (!nominal) return nominal;
    auto result = *std::move(nominal);
    const auto nominal_schedule = options.start ? *retime(p, *options.start) : result.schedule;

    how.start = result.schedule;
    how.cache.clear();
    how.progress = collect;
    how.time_limit = time_until(with.nominal_share + with.protected_share);
    if (const auto with_slack = plan_nominally(with_protection(p, robust.noise), how))
        found.push_back(std::make_shared<const schedule>(with_slack->schedule));
    found.push_back(std::make_shared<const schedule>(result.schedule));

    const auto nominal_order = order_of(nominal_schedule);
    const bool is_timed = end != clock::time_point::max();
    std::size_t confirming = with.confirmation * robust.samples;
    if (is_timed) {
        const auto one_begin = clock::now();
        static_cast<void>(noisy_order{p, nominal_order}.step_time(robust.noise, 0));
        const auto both = 2.0 * seconds{clock::now() - one_begin};
        const auto enough = with.confirmation_share * *options.time_limit / both;
        if (enough < static_cast<double>(confirming))
            confirming = std::max(with.least_confirmation, static_cast<std::size_t>(std::max(0.0, enough)));
        end -= std::chrono::duration_cast<clock::duration>(static_cast<double>(confirming) * both);
    }
    robust_improver improver{p, robust, stop_check{options.stop, end}};
    improver.offer(nominal_order);
    for (const auto& candidate : found)
        if (const auto timed = retime(p, *candidate)) improver.offer(order_of(*timed));
    const auto per_move = nominal_schedule.operations.size() * (1 + robust.samples / with.samples_per_look);
    improver.improve(is_timed ? std::numeric_limits<std::size_t>::max()
                              : robust.effort / std::max<std::size_t>(1, per_move),
                     random_numbers{options.seed}, [&] {
                         if (options.processor) options.processor->pause_if_over(options.stop, end);
                     });

    auto fresh = robust.noise;
    fresh.seed = random_numbers{robust.noise.seed}.next();
    const auto& best_order = improver.best() ? *improver.best() : nominal_order;
    const auto times = compare_orders(p, nominal_order, best_order, fresh, confirming, with.least_confirmation,
                                      stop_check{options.stop});
    if (options.stops_without_plan && options.stop.stop_requested()) return was_stopped();
    robust_result numbers;
    numbers.nominal_objective = objective_of(p, nominal_schedule);
    numbers.mean = numbers.nominal_mean = mean_of(times.first);
    numbers.percentile = numbers.nominal_percentile = percentile_of(times.first, robust.percentile);
    const auto percentile = percentile_of(times.second, robust.percentile);
    const bool is_better = percentile < (1.0 - with.least_gain) * numbers.nominal_percentile;
    if (is_better) {
        numbers.mean = mean_of(times.second);
        numbers.percentile = percentile;
        result.method = "robust";
    } else if (options.start) {
        result.method = start_method;
    }
    if (is_better || options.start) {
        result.schedule = is_better ? *time_order(p, best_order) : nominal_schedule;
        result.objective = objective_of(p, result.schedule);
        result.gap = result.objective > duration{} ? (result.objective - result.bound) / result.objective : 0.0;
        // The proof is one of the plan without noise.
        if (result.why == plan_end::optimal || result.why == plan_end::gap) result.why = plan_end::effort_spent;
    }
    result.seconds = seconds{clock::now() - begin}.count();
    result.robust = numbers;
    return result;
}

} // namespace detail
} // namespace optpipe
