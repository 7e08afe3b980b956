#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/deadline.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/parallel/arena.hpp"
#include "optpipe/parallel/workers.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/bounds/pair_area.hpp"
#include "optpipe/planner/bounds/single_device.hpp"
#include "optpipe/planner/bounds/storage_mix.hpp"
#include "optpipe/planner/cache/adapt.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/planner/local_search/multi_start.hpp"
#include "optpipe/planner/order_search/order_search.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/concurrent_portfolio.hpp"
#include "optpipe/planner/portfolio/deterministic_portfolio.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/robust_search.hpp"
#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/planner/strategies/order_strategy.hpp"
#include "optpipe/planner/strategies/published_builders.hpp"
#include "optpipe/planner/strategies/standard_strategies.hpp"
#include "optpipe/planner/time_for_cheaper_storage.hpp"
#include "optpipe/schedule/bounds/lone_rank.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/construct/carry_over.hpp"
#include "optpipe/schedule/construct/cheaper_storage.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// The number of threads of the search, at most one per core.
inline std::size_t thread_count(const plan_options& options) {
    const auto cores = parallel::available_cores();
    return options.threads > 0 ? std::min(options.threads, cores) : cores;
}

/// The time at which the time limit ends.
inline std::chrono::steady_clock::time_point end_of(const plan_options& options) {
    using clock = std::chrono::steady_clock;
    return options.time_limit ? deadline_after(clock::now(), *options.time_limit) : clock::time_point::max();
}

/// The limits of the search. The deadline precedes `end` by the time that is reserved for cheaper storage.
inline search_limits limits_of(const problem& p, const plan_options& options,
                               std::chrono::steady_clock::time_point end) {
    using clock = std::chrono::steady_clock;
    search_limits limits;
    limits.stop = options.stop;
    if (options.stops_without_plan) limits.abandon = options.stop;
    limits.gap = options.gap;
    limits.most_distinct_pairs = options.most_distinct_pairs;
    limits.processor = options.processor;
    limits.deadline = end;
    if (end != clock::time_point::max())
        limits.deadline -=
            std::chrono::duration_cast<clock::duration>(time_for_cheaper_storage(p, *options.time_limit));
    return limits;
}

inline failure_handling failures_of(const plan_options& options) { return {options.drop_failures, options.warn}; }

inline void check_robust_options(const robust_options& options, std::vector<violation>& found) {
    const auto& noise = options.noise;
    if (!(options.percentile > 0.0 && options.percentile <= 100.0))
        found.push_back({"robust.percentile", "must be above 0, at most 100"});
    if (options.samples == 0) found.push_back({"robust.samples", "must not be 0"});
    if (!(noise.spread >= 0.0 && std::isfinite(noise.spread)))
        found.push_back({"robust.noise.spread", "must be finite and not negative"});
    for (const auto& [name, share] :
         {std::pair{"rank_correlation", noise.rank_correlation}, std::pair{"slow_link_chance", noise.slow_link_chance},
          std::pair{"straggler_chance", noise.straggler_chance}})
        if (!(share >= 0.0 && share <= 1.0))
            found.push_back({std::string{"robust.noise."} + name, "must be between 0 and 1"});
    for (const auto& [name, factor] :
         {std::pair{"slow_link_factor", noise.slow_link_factor}, std::pair{"straggler_factor", noise.straggler_factor}})
        if (!(factor > 0.0 && std::isfinite(factor)))
            found.push_back({std::string{"robust.noise."} + name, "must be finite and above 0"});
}

inline void check_options(const plan_options& options, const std::vector<any_search_strategy>& strategies) {
    std::vector<violation> found;
    if (options.time_limit && !(options.time_limit->count() >= 0.0))
        found.push_back({"time_limit", "must not be negative"});
    if (!(options.gap >= 0.0 && options.gap <= 1.0)) found.push_back({"gap", "must be between 0 and 1"});
    if (options.robust) check_robust_options(*options.robust, found);
    auto names = builder_names();
    for (const auto& strategy : strategies)
        if (std::find(names.begin(), names.end(), strategy.name()) == names.end()) names.push_back(strategy.name());
    for (const auto& name : options.without) {
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        std::string list;
        for (const auto& known : names)
            list += (list.empty() ? "" : ", ") + std::string{known};
        found.push_back({"without", "there is no \"" + name + "\"; there are " + list});
    }
    if (!found.empty()) throw input_error{"plan options", std::move(found)};
}

/// `options.start`, timed as a schedule of `p`. Empty without a start. Throws `input_error` if `p` can't execute the
/// start.
inline std::optional<schedule> start_of(const problem& p, const plan_options& options) {
    if (!options.start) return std::nullopt;
    const auto& of = options.start->graph;
    if (of.ranks() != p.graph.ranks() || of.stages() != p.graph.stages() || of.microbatches() != p.graph.microbatches())
        throw input_error{"plan options",
                          {{"start", "is of another pipeline: with " + std::to_string(of.ranks()) + " ranks, " +
                                         std::to_string(of.stages()) + " stages and " +
                                         std::to_string(of.microbatches()) + " microbatches"}}};
    if (!has_times(options.start->operations)) throw input_error{"plan options", {{"start", "has a time that is NaN"}}};
    auto timed = carry_over(p, *options.start);
    if (!timed) throw input_error{"plan options", {{"start", describe(timed.why())}}};
    return *std::move(timed);
}

/// While this object lives, its creating thread and the arena's threads count as search threads.
class counted_threads : parallel::arena_observer {
public:
    counted_threads(parallel::arena& arena, std::shared_ptr<processor_share> processor)
        : parallel::arena_observer{arena}, processor_{std::move(processor)} {
        if (!processor_) return;
        processor_->enter(this);
        start();
    }
    ~counted_threads() override {
        if (!processor_) return;
        stop();
        processor_->leave_all(this);
    }

private:
    void joined() override { processor_->enter(this); }
    void left() override { processor_->leave(this); }

    std::shared_ptr<processor_share> processor_;
};

/// One search for a plan. Bounds and builders come first, then all strategies.
class plan_search {
public:
    plan_search(const problem& p, const plan_options& options, std::vector<any_search_strategy> strategies)
        : options_{options}, is_plain_{optpipe::is_plain(p)}, end_{end_of(options)}, start_{start_of(p, options)},
          threads_{thread_count(options)}, state_{p, limits_of(p, options, end_), options.progress,
                                                  failures_of(options)} {
        for (auto& strategy : strategies)
            if (!is_left_out(options.without, strategy.name())) strategies_.push_back(std::move(strategy));
    }

    outcome<plan_result> run() {
        parallel::arena arena{threads_};
        const counted_threads counted{arena, options_.processor};
        arena.execute([&] { search(); });
        if (state_.abandoned()) return was_stopped();
        find_any_schedule();
        if (!state_.incumbent()) return refused_ ? *refused_ : was_stopped();
        reduce_storage();
        auto found = result(*state_.incumbent());
        if (uses_cache() && !is_cached_) store_in_cache(found);
        return found;
    }

private:
    /// The time at which a quarter of the remaining time has passed. Computing bounds takes a second for a million
    /// cells. Adapting entries of the cache takes some hundredths of a second. Most of the time is left to find a
    /// schedule.
    [[nodiscard]] std::chrono::steady_clock::time_point part_for_bounds() const {
        constexpr int part = 4;
        const auto now = std::chrono::steady_clock::now();
        return now + (state_.limits().deadline - now) / part;
    }
    /// Whether the search is done, or `end` has passed.
    [[nodiscard]] auto is_after(std::chrono::steady_clock::time_point end) const {
        return stop_when{[this, end] { return state_.done() || std::chrono::steady_clock::now() >= end; }};
    }
    void search() {
        const stopwatch watch;
        const auto late = is_after(part_for_bounds());
        state_.try_strategy(structure,
                            [&] { state_.raise_bound(bounds_of(state_.problem(), late).best(), structure); });
        if (is_plain_ && !is_described_by_costs(state_.problem()) && state_.problem().graph.ranks() == 1)
            state_.try_strategy(single_device_method, [&] { decide_single_device(late); });
        if (!is_plain_)
            state_.try_strategy(structure, [&] {
                state_.raise_bound(pair_area_bound(state_.problem(), state_.bound(), late), pair_area);
            });
        log_.add(structure, watch.seconds());
        // With storage options, further bounds take up to a second, and no builder uses them.
        const bool has_slow_bounds = !is_described_by_costs(state_.problem());
        if (!has_slow_bounds) raise_bound_further(late);
        if (start_) {
            const stopwatch to_offer;
            state_.offer(*start_, start_method);
            log_.add(start_method, to_offer.seconds());
        }
        if (uses_cache()) {
            state_.try_strategy(cached, [&] { start_from_cache(late); });
            if (is_cached_ || state_.done()) return;
        }
        const bool is_first = !state_.incumbent();
        if (!is_first && !is_plain_) search_from_start();
        const auto find_any = [&] {
            if (!is_left_out(options_.without, adaptive.name)) find_any_schedule();
        };
        auto built =
            run_published_builders(state_, options_.without, threads_, log_, {find_any, [&] { run_adaptive_once(); }});
        builders_ = std::move(built.results);
        if (has_slow_bounds) raise_bound_further(is_after(part_for_bounds()));
        find_any();
        run_adaptive_once();
        if (is_first && is_plain_) search_from(std::move(built.best));
        if (state_.done()) return;
        const auto left = strategies_left();
        if (!options_.time_limit)
            run_deterministic_portfolio(state_, left,
                                        {.seed = options_.seed, .threads = threads_, .batches = short_batches}, log_);
        else if (options_.deterministic)
            run_deterministic_portfolio(state_, left, {.seed = options_.seed, .threads = threads_}, log_);
        else
            run_concurrent_portfolio(state_, left, {.seed = options_.seed, .threads = threads_}, log_);
    }

    /// Raises the bound of a plain problem by methods that take longer than `bounds_of`.
    void raise_bound_further(const stop_condition& stop) {
        if (!is_plain_) return;
        const stopwatch watch;
        state_.try_strategy(structure, [&] {
            state_.raise_bound(storage_mix_bound(state_.problem(), state_.bound(), stop), storage_mix);
            state_.raise_bound(lone_rank_bound(state_.problem(), state_.bound(), stop), lone_rank);
        });
        log_.add(structure, watch.seconds());
    }
    void decide_single_device(stop_check stop) {
        const auto found = single_device(state_.problem(), stop);
        state_.raise_bound(found.bound, single_device_method);
        if (found.best) state_.offer(*found.best, single_device_method);
    }

    /// Runs the adaptive strategy once. With a time limit, the strategy gets all its effort at once. Time slices would
    /// spread this work of less than a second over the complete search. Without a time limit, the strategy gets only
    /// the effort of its first slice. Later batches of the portfolio give the strategy more effort.
    void run_adaptive_once() {
        const auto* strategy = strategy_named(adaptive_strategy::name);
        if (!strategy || has_run_adaptive_ || state_.done()) return;
        const auto traits = strategy->traits(state_.problem());
        if (!traits.applicable || !state_.has_time_for(traits.least_passes)) return;
        has_run_adaptive_ = true;
        const auto effort = options_.time_limit ? adaptive_strategy::most_effort : traits.first_effort;
        auto limits = state_.limits();
        limits.deadline = builder_deadline(limits, builder_parameters{}.slice_of_constructive);
        search_state view{state_, std::move(limits), strategy->name()};
        const stopwatch watch;
        state_.try_strategy(strategy->name(), [&] { (*strategy)(view, {options_.seed, effort, 1}); });
        log_.add(strategy->name(), watch.seconds());
        has_finished_adaptive_ = options_.time_limit && !view.done();
    }
    /// All strategies. The adaptive strategy is left out if it has used up its effort.
    [[nodiscard]] std::vector<any_search_strategy> strategies_left() const {
        auto left = strategies_;
        if (has_finished_adaptive_)
            std::erase_if(left, [&](const any_search_strategy& strategy) {
                return strategy.name() == adaptive_strategy::name && strategy.traits(state_.problem()).applicable;
            });
        return left;
    }
    void search_from(std::vector<search_start> starts) {
        if (!strategy_named(local_search_strategy::name) || state_.done()) return;
        const stopwatch watch;
        state_.try_strategy(local_search_strategy::name, [&] {
            multi_start_search(state_, std::move(starts), local_search_strategy::name,
                               {.seed = options_.seed, .threads = threads_, .deterministic = options_.deterministic});
        });
        log_.add(local_search_strategy::name, watch.seconds());
    }
    /// Improves the start on all threads for up to `order_search_parameters::moment`, before the strategies share the
    /// time. A search with a time limit below `moment` spends all its time here. If microbatches differ, half of the
    /// time goes to dispatchers. From the start, dispatchers take only the order in which microbatches enter.
    /// `order_search` gets the remaining time.
    void search_from_start() {
        if (!strategy_named(order_strategy::name) || state_.done() || options_.deterministic || !options_.time_limit)
            return;
        const stopwatch watch;
        constexpr order_search_parameters with;
        const auto now = std::chrono::steady_clock::now();
        auto limits = state_.limits();
        limits.deadline = std::min(limits.deadline, deadline_after(now, with.moment));
        auto first_half = limits;
        first_half.deadline = now + (limits.deadline - now) / 2;
        const auto given = order_of(*state_.incumbent());
        const bool dispatches = strategy_named(adaptive_strategy::name) &&
                                sequences_by_cost(state_.problem()).size() > 1 &&
                                search_state{state_, first_half, std::string{adaptive_strategy::name}}.has_time_for(
                                    adaptive_strategy::least_passes);
        const auto work = [&](std::size_t thread) {
            if (dispatches) dispatch_from(given, first_half, thread);
            search_state view{state_, limits, std::string{order_strategy::name}};
            state_.try_strategy(order_strategy::name, [&] {
                order_search(view,
                             {.seed = options_.seed + thread,
                              .first_temperature = with.temperature_of_start,
                              .percent_critical = with.percent_critical_of_start,
                              .until_deadline = true,
                              .most_distinct_pairs = limits.most_distinct_pairs},
                             order_strategy::name);
            });
        };
        parallel::workers{threads_, work}.run(threads_);
        log_.add(order_strategy::name, watch.seconds());
    }
    /// Runs dispatchers until the deadline. Microbatches first enter in the order of `given` on threads with an even
    /// number. On threads with an odd number, the longest microbatches are in the middle of the order.
    void dispatch_from(const order& given, const search_limits& limits, std::size_t thread) {
        search_state view{state_, limits, std::string{adaptive_strategy::name}};
        state_.try_strategy(adaptive_strategy::name, [&] {
            best_order<any_graph> best{state_.problem()};
            constexpr auto no_limit = std::numeric_limits<std::size_t>::max();
            graph_dispatch_search<any_graph> search{state_.problem(), best, stop_check{view}, no_limit,
                                                    options_.seed + thread};
            search.run_from(thread % 2 == 0 ? search.entrance_order(given) : search.longest_inside());
            if (best.found()) view.offer(*best, adaptive_strategy::name);
        });
    }
    /// Whether the cache is used. With limited distinct pairs, the cache isn't used: its entries don't record such
    /// limits.
    [[nodiscard]] bool uses_cache() const {
        return !options_.cache.empty() && options_.most_distinct_pairs == plan_options{}.most_distinct_pairs;
    }
    /// Once `late` is true, no further entries of similar problems are adapted.
    void start_from_cache(stop_check late) {
        const stopwatch watch;
        const auto& p = state_.problem();
        const auto hits = plan_cache{options_.cache, options_.warn}.find(canonical_form(p));
        const auto units = canonical_units_of(p);
        if (hits.exact && offer_adapted(*hits.exact)) {
            cached_ = cache_use::exact;
            const auto cached_objective = hits.exact->objective * units.time + state_.slack();
            const bool holds = state_.objective() <= cached_objective;
            // Without a time limit, a search with at most the effort of the cached plan would find no better plan.
            is_cached_ = holds && !options_.time_limit && hits.exact->budget >= budget();
            if (holds) cached_method_ = hits.exact->method;
        }
        for (const auto& entry : hits.near) {
            if (is_cached_ || state_.done() || (cached_ != cache_use::none && late())) break;
            if (offer_adapted(entry) && cached_ == cache_use::none) cached_ = cache_use::near;
        }
        state_.raise_bound(std::min(hits.bound * units.time, state_.objective()), cached);
        is_cached_ = is_cached_ || (cached_ == cache_use::exact && state_.settled());
        log_.add(cached, watch.seconds());
    }
    /// Offers orders of the cache entry, adapted to the problem. Returns whether any adapted order is executable.
    bool offer_adapted(const cache_entry& entry) {
        constexpr std::size_t enough = 3; // later orders differ little from the first ones
        std::size_t executable = 0;
        const auto& p = state_.problem();
        for (const auto& adapted : adapted_orders(entry, p, enough)) {
            if (executable > 0 && state_.done()) break;
            order candidate{p.graph, {}};
            candidate.operations.assign(adapted.begin(), adapted.end());
            if (!state_.offer(candidate, cached).is_unlimited() && ++executable == enough) break;
        }
        return executable > 0;
    }
    void store_in_cache(const plan_result& found) const {
        const bool complete = found.why == plan_end::effort_spent || found.why == plan_end::time_limit;
        const double spent = found.why == plan_end::optimal       ? std::numeric_limits<double>::infinity()
                             : complete && searches_in_all_ways() ? budget()
                                                                  : 0.0;
        plan_cache{options_.cache, options_.warn}.store(
            make_cache_entry(state_.problem(), found.schedule, found.objective, found.bound, spent, found.method));
    }
    /// Whether all usual builders and strategies run. A search that leaves builders or strategies out may find less.
    [[nodiscard]] bool searches_in_all_ways() const {
        const auto usual = standard_strategies();
        return options_.without.empty() &&
               std::all_of(usual.begin(), usual.end(),
                           [&](const any_search_strategy& each) { return strategy_named(each.name()) != nullptr; });
    }
    /// The time budget in seconds.
    [[nodiscard]] double budget() const { return options_.time_limit ? options_.time_limit->count() : 1.0; }

    [[nodiscard]] const any_search_strategy* strategy_named(std::string_view name) const {
        const auto found = std::find_if(strategies_.begin(), strategies_.end(),
                                        [&](const any_search_strategy& strategy) { return strategy.name() == name; });
        return found == strategies_.end() ? nullptr : &*found;
    }

    /// Without a schedule, makes one by a method that needs no search, even after the time limit. If there can't be a
    /// schedule, records the refusal.
    void find_any_schedule() {
        if (state_.incumbent() || refused_ || state_.abandoned()) return;
        const stopwatch watch;
        const auto& p = state_.problem();
        outcome<order> built;
        state_.try_strategy(adaptive.name, [&] {
            if (is_plain_ && fits_one_at_a_time(p))
                state_.offer(order_within_memory(p, least_memory(p)), adaptive.name);
            if (state_.incumbent() || state_.abandoned()) return;
            const stop_when at_once{[] { return true; }};
            built = adaptive_builder<>{.effort = 1}(p, at_once);
            if (built) state_.offer(*built, adaptive.name);
        });
        log_.add(adaptive.name, watch.seconds());
        if (!state_.incumbent() && !state_.abandoned()) refused_ = built ? simulate(p, *built).why() : built.why();
    }

    /// Reduces recomputation and transfers of the incumbent. Operations may start later, but the objective gets no
    /// worse. The reduction gets a little time even if the search ended late. After a stop request, the reduction gets
    /// no time.
    void reduce_storage() {
        const auto best = state_.incumbent();
        if (!is_plain_ || options_.stop.stop_requested() || storage_time_of(state_.problem(), *best) <= duration{})
            return;
        const stopwatch watch;
        const auto until = std::max(end_, deadline_after(std::chrono::steady_clock::now(), moment_for_storage()));
        state_.try_strategy(cheaper_storage, [&] {
            state_.offer_timed(with_cheaper_storage(state_.problem(), *best, cheaper_storage_parameters{}.effort,
                                                    stop_check{options_.stop, until}),
                               cheaper_storage);
        });
        log_.add(cheaper_storage, watch.seconds());
    }
    [[nodiscard]] std::chrono::duration<double> moment_for_storage() const {
        constexpr cheaper_storage_parameters with;
        return options_.time_limit ? std::min(with.part * *options_.time_limit, with.moment) : with.moment;
    }
    plan_result result(schedule best) {
        plan_result r;
        r.schedule = std::move(best);
        r.objective = state_.objective();
        r.bound = std::min(state_.bound(), r.objective);
        r.gap = relative_gap(r.objective, r.bound);
        r.why = why();
        r.seconds = state_.seconds();
        r.history = state_.history();
        r.method = finder(r.history);
        if (r.method == cached && !cached_method_.empty()) r.method = cached_method_;
        r.contributions = log_.with(r.history);
        r.builders = std::move(builders_);
        r.cached = cached_;
        return r;
    }
    [[nodiscard]] plan_end why() const {
        if (state_.proven()) return plan_end::optimal;
        if (state_.settled()) return plan_end::gap;
        if (options_.stop.stop_requested()) return plan_end::stop_request;
        return state_.done() ? plan_end::time_limit : plan_end::effort_spent;
    }
    static std::string finder(const std::vector<search_step>& history) {
        std::string name;
        duration best = duration::unlimited();
        for (const auto& step : history) {
            if (step.objective < best) name = step.strategy;
            best = std::min(best, step.objective);
        }
        return name;
    }

    static constexpr std::string_view structure = "structure";
    static constexpr std::string_view storage_mix = "storage-mix";
    static constexpr std::string_view lone_rank = "lone-rank";
    static constexpr std::string_view pair_area = "pair-area";
    static constexpr std::string_view single_device_method = "single-device";
    static constexpr std::string_view cached = "cache";
    static constexpr std::string_view cheaper_storage = "cheaper-storage";

    const plan_options& options_;
    /// Whether the problem is plain, so that all searches apply.
    bool is_plain_;
    /// End of the time limit. The search ends before `end_`, to leave time for cheaper storage options.
    std::chrono::steady_clock::time_point end_;
    std::optional<schedule> start_;
    std::size_t threads_;
    search_state state_;
    std::vector<any_search_strategy> strategies_{};
    run_log log_{};
    std::vector<builder_result> builders_{};
    cache_use cached_ = cache_use::none;
    bool is_cached_ = false;
    /// Why no schedule was found without search. The refusal is ignored if a strategy finds a schedule.
    std::optional<refusal> refused_{};
    bool has_run_adaptive_ = false;
    bool has_finished_adaptive_ = false;
    std::string cached_method_{};
};

} // namespace detail

// The functions through which callers reach the search. With OPTPIPE_COMPILED, only one source of the library includes
// this header.

OPTPIPE_INLINE std::vector<any_search_strategy> standard_strategies() {
    return {propagation_strategy{}, cp_strategy{},   local_search_strategy{}, rescheduling_strategy{},
            modulo_strategy{},      milp_strategy{}, adaptive_strategy{},     order_strategy{}};
}

OPTPIPE_INLINE outcome<plan_result> plan(const problem& p, const plan_options& options,
                                         std::vector<any_search_strategy> strategies) {
    if (auto violations = validate(p); !violations.empty())
        throw input_error{p.name.empty() ? "problem" : p.name, std::move(violations)};
    detail::check_options(options, strategies);
    if (options.robust) {
        require_plain(p, "plans for a percentile under noise are made");
        const auto end = detail::end_of(options);
        const auto plan_nominally = [&](const problem& q, const plan_options& how) {
            return detail::plan_search{q, how, strategies}.run();
        };
        return detail::robust_planner{p, options, end, plan_nominally}.run();
    }
    return detail::plan_search{p, options, std::move(strategies)}.run();
}

OPTPIPE_INLINE outcome<plan_result> plan(const problem& p, const plan_options& options) {
    return plan(p, options, standard_strategies());
}

} // namespace optpipe
