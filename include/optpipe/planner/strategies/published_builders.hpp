#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/parallel/workers.hpp"
#include "optpipe/planner/local_search/multi_start.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/builders/method_name.hpp"
#include "optpipe/schedule/construct/distinct_pairs.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/value.hpp"

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe {

/// The results of the builders.
struct built_schedules {
    /// One result per builder, in the order of `all_builders`.
    std::vector<builder_result> results{};
    /// The best schedule. With storage options besides `keep` and `offload`, the list also holds the next best
    /// schedules. All objectives in the list differ.
    std::vector<search_start> best{};
};

/// Callbacks between builders.
struct between_builders {
    /// Finds any schedule. Called if no builder without stop check has found a schedule that fits.
    std::function<void()> if_none_fits{};
    /// Runs the constructive planner.
    std::function<void()> run_constructive{};
};

namespace detail {

/// Limits for skipping and stopping builders. Not tuned, unless a comment says otherwise.
struct builder_parameters {
    /// Share (0 to 1) of the remaining time for all stoppable builders without a search together. With a time limit of
    /// 4 s, builders that take a second finish even on a machine that is three times slower. On 56 of 59 problems with
    /// up to 4096 stages times microbatches, the builders without search take up to 0.3 s. The longest run takes 1 s
    /// (po-f, 16 ranks with four stages each).
    double slice = 0.75;
    /// Share of the remaining time for the constructive planner with all its effort. The constructive planner takes 0.3
    /// to 0.6 s on the problems with up to 4096 stages times microbatches.
    double slice_of_constructive = 0.75;
    /// Share of the remaining time for builders that search. Builders that search run at the same time as the
    /// constructive planner. The builder v-auto returns its best schedule when its time is up. With 0.5 and a time
    /// limit of 3 s, a plan for Llama 3 70B was 0.6 % longer than v-auto's schedule (16 ranks in v placement, busy
    /// machine). At that time, v-auto needed 1.3 s for its schedule, and now needs 0.9 s.
    double slice_of_searches = 0.75;
    /// Shares of the remaining time in problems with storage options besides `keep` and `offload`. Stoppable builders
    /// that don't search get `slice_with_options` together. The constructive planner's few trials with each option then
    /// get `slice_of_quick`. The results show which options are promising. The trials help if no other builder finds a
    /// schedule that fits in memory. On sixty random models with a second each, 19 plans were better with the trials,
    /// and 16 were worse. Steps were 0.4 % shorter on average. Builders with the most promising option then get
    /// `slice_of_searches`, to run to their end. If the problem isn't plain, builders with the most promising option
    /// get only `slice_with_options`. With `slice_of_searches`, a plan for microbatches that differ was 4.9 % longer,
    /// because `order-search` had too little time. Builders with other options get `slice_of_others`, which leaves most
    /// of the time for strategies.
    double slice_with_options = 0.25;
    double slice_of_quick = 0.125;
    double slice_of_others = 0.125;
    /// Time to reserve, in passes through the problem. `to_offer` is for offering the best schedule.
    /// `to_build_and_offer` is used while there is no schedule.
    double to_offer = 2.0;
    double to_build_and_offer = 4.0;
    /// Time in seconds by which builders without stop check may exceed the deadline. Builders without stop check take
    /// less time, except on the largest problems.
    std::chrono::duration<double> moment{0.1};
    /// Estimated time of a builder's pass before a pass is measured, in seconds per cell (stage and microbatch). With
    /// 250 stages and 4000 microbatches, a pass took twice as long. If there is no time, the estimate allows only one
    /// schedule for a million cells.
    double pass_seconds_per_cell = 5e-7;
    /// Number of storage options for stoppable builders, without a deadline and with options besides `keep` and
    /// `offload`. The options with the best results of all other builders are taken. Each run takes up to 0.8 s
    /// (v-auto, 8 ranks in v placement, 32 microbatches).
    std::size_t most_options_searched = 3;
    /// Largest number of cells (stages times microbatches) without a deadline. The number is summed over the options
    /// with which the constructive planner runs. A cell takes about 7 µs.
    std::size_t most_cells = 100'000;
    /// Number of local search starts with storage options besides `keep` and `offload`. The best schedules with
    /// distinct objective values are taken. On three random models, local search with 60,000 moves was best from the
    /// fourth, the fifth and the sixth of seven schedules.
    std::size_t starts = 8;
};

/// The deadline of a stoppable builder that gets the share `slice` of the remaining time. Unlimited if the search has
/// no deadline.
inline std::chrono::steady_clock::time_point builder_deadline(const search_limits& limits, double slice) {
    using clock = std::chrono::steady_clock;
    if (limits.deadline == clock::time_point::max()) return limits.deadline;
    const auto now = clock::now();
    return now + std::chrono::duration_cast<clock::duration>(slice * (limits.deadline - now));
}

struct builder_job {
    std::string name;
    std::function<outcome<schedule>(const problem&, stop_check)> build;
    /// Whether the builder polls for a stop. Builders that don't poll take about the time of one pass through the
    /// problem.
    bool stoppable = false;
    /// Whether the builder searches until its effort is used up.
    bool searches = false;
    /// Whether the builder searches with only a few trials.
    bool quick = false;
    bool published = true;
    /// The name of the storage option for all microbatches. All stages have an option with this name. Empty if the
    /// builder chooses options itself, or if there are no options to choose from.
    std::string option{};
    /// Set for quick builders. Calls the builder with its effort, divided by the number of storage options.
    std::function<outcome<schedule>(const problem&, stop_check)> build_fully{};
    /// Whether the builder has run to its end, not only to a deadline.
    bool is_finished = false;
};

template <class Build> inline constexpr bool is_stoppable = has_stoppable_build<std::decay_t<Build>>;
template <class Build> inline constexpr bool is_search = requires(const Build& build) { build.effort; };

/// Calls `visit(builder)` for the builders that can apply to `p`, except builders that choose storage options. The
/// constructive planner is visited only if it plans with one storage option for all microbatches. If the constructive
/// planner chooses storage options, it runs as a strategy.
template <class Visitor> void for_each_published_builder(const problem& p, Visitor visit) {
    const bool plain = is_plain(p);
    for_each_builder([&](const auto& build) {
        constexpr bool is_constructive = std::is_same_v<std::decay_t<decltype(build)>, adaptive_builder<>>;
        if (!is_constructive || (plain && !is_described_by_costs(p))) visit(build);
    });
    if (!plain) for_each_graph_builder(visit);
}

inline std::vector<builder_job> published_builders(const problem& p, const std::vector<std::string>& without) {
    std::vector<builder_job> jobs;
    for_each_published_builder(p, [&](const auto& build) {
        const std::string name{build.name};
        if (!is_left_out(without, name))
            jobs.push_back({name, [build](const problem& q, stop_check stop) { return build_schedule(q, build, stop); },
                            is_stoppable<decltype(build)>, is_search<decltype(build)>});
    });
    return jobs;
}

/// One job for each builder and each storage option that all stages have, in the order of the builders. Builders that
/// choose options themselves follow with one job each.
inline std::vector<builder_job> uniform_storage_builders(const problem& p, const std::vector<std::string>& without) {
    std::vector<builder_job> jobs;
    const auto choices = uniform_choices(p);
    for_each_published_builder(p, [&](const auto& build) {
        const std::string name{build.name};
        if (is_left_out(without, name)) return;
        auto quick = build;
        auto full = build;
        constexpr bool is_constructive = std::is_same_v<std::decay_t<decltype(build)>, adaptive_builder<>>;
        if constexpr (is_constructive) {
            quick.effort = 1;
            full.effort /= std::max<std::size_t>(choices.size(), 1);
        }
        for (const auto& choice : choices) {
            const auto run_with = [options = choice.options](const auto& builder) {
                return [builder, options](const problem& q, stop_check stop) {
                    return build_uniform_schedule(q, builder, options, stop);
                };
            };
            const std::string option{choice.name.view()};
            jobs.push_back({method_with_storage(name, option), run_with(quick), is_stoppable<decltype(build)>,
                            is_search<decltype(build)>, is_constructive, !is_constructive, option});
            if constexpr (is_constructive) jobs.back().build_fully = run_with(full);
        }
    });
    for_each_storage_builder([&](const auto& build) {
        if (const std::string name{build.name}; !is_left_out(without, name))
            jobs.push_back({name, [build](const problem& q, stop_check stop) { return build_schedule(q, build, stop); },
                            is_stoppable<decltype(build)>});
    });
    return jobs;
}

/// Runs builders on several threads and keeps the best schedule. Ties (`is_better`) go to the builder that comes first
/// in the list. With storage options besides `keep` and `offload`, local search gets several schedules: the best often
/// isn't the best start.
class builder_runner {
public:
    builder_runner(search_state& state, std::vector<builder_job> jobs, run_log& log)
        : state_{state}, jobs_{std::move(jobs)}, log_{log},
          results_(jobs_.size()), pass_{with_.pass_seconds_per_cell *
                                        static_cast<double>(state.problem().graph.cells())} {}

    built_schedules run(std::size_t threads, const between_builders& between) {
        run_those(jobs_that([](const builder_job& j) { return !j.stoppable; }), state_.limits().deadline, threads);
        if (!state_.incumbent()) between.if_none_fits();
        if (is_described_by_costs(state_.problem()))
            run_stoppable(threads, between.run_constructive);
        else
            run_with_options(threads, between.run_constructive);
        return {std::move(results_), starts()};
    }

private:
    struct found {
        std::size_t job = 0;
        schedule_value value{};
        schedule made{};

        /// Whether this schedule is better than `other`, or as good and from an earlier builder.
        [[nodiscard]] bool comes_before(const found& other) const {
            if (is_better(value, other.value) || is_better(other.value, value)) return is_better(value, other.value);
            return job < other.job;
        }
    };

    /// Runs the stoppable builders. Builders that search come last, at the same time as the constructive planner. The
    /// constructive planner's result depends on whether the search has ended. Without a deadline, the caller therefore
    /// runs the constructive planner later.
    void run_stoppable(std::size_t threads, const std::function<void()>& run_constructive) {
        run_those(jobs_that([](const builder_job& j) { return j.stoppable && !j.searches; }),
                  builder_deadline(state_.limits(), with_.slice), threads);
        run_those(jobs_that([](const builder_job& j) { return j.searches; }),
                  builder_deadline(state_.limits(), with_.slice_of_searches), threads,
                  has_deadline() ? run_constructive : std::function<void()>{});
    }
    /// Runs the stoppable builders with each storage option. With a deadline, builders that don't search come first.
    /// The constructive planner runs with all its effort after its few trials.
    void run_with_options(std::size_t threads, const std::function<void()>& run_constructive) {
        if (has_deadline())
            run_those(untried_first(jobs_that([](const builder_job& j) { return j.stoppable && !j.searches; })),
                      builder_deadline(state_.limits(), with_.slice_with_options), threads);
        const auto most_quick = with_.most_cells / state_.problem().graph.cells();
        const auto quick = jobs_that([](const builder_job& j) { return j.quick; });
        run_those(untried_first(promising(quick, std::max(with_.most_options_searched, most_quick))),
                  builder_deadline(state_.limits(), with_.slice_of_quick), threads);
        auto unfinished = jobs_that([](const builder_job& j) { return j.stoppable && !j.quick && !j.is_finished; });
        if (has_deadline()) {
            for (const auto k : quick)
                jobs_[k].build = jobs_[k].build_fully;
            unfinished.insert(unfinished.begin(), quick.begin(), quick.end());
        }
        run_by_promise(promising(std::move(unfinished), with_.most_options_searched), threads,
                       has_deadline() ? run_constructive : std::function<void()>{});
    }
    /// Runs sorted jobs, and the constructive planner at the same time. Jobs with the first option get more time.
    void run_by_promise(const std::vector<std::size_t>& which, std::size_t threads,
                        const std::function<void()>& run_constructive) {
        const bool plain = is_plain(state_.problem());
        const auto until =
            builder_deadline(state_.limits(), plain ? with_.slice_of_searches : with_.slice_with_options);
        const auto until_of_others = builder_deadline(state_.limits(), with_.slice_of_others);
        const auto is_first = [&](std::size_t k) { return jobs_[k].option == jobs_[which.front()].option; };
        run_those(
            which, [&](std::size_t k) { return is_first(k) ? until : until_of_others; }, threads, run_constructive);
    }
    [[nodiscard]] bool has_deadline() const {
        return state_.limits().deadline != std::chrono::steady_clock::time_point::max();
    }
    void run_those(const std::vector<std::size_t>& which, std::chrono::steady_clock::time_point until,
                   std::size_t threads, const std::function<void()>& beside = {}) {
        run_those(
            which, [until](std::size_t) { return until; }, threads, beside);
    }
    /// Starts `beside`, and runs the jobs `which` at the same time, each until `deadline_of(job)`. Once all jobs have
    /// finished, offers only the best schedule, to credit its builder.
    template <std::invocable<std::size_t> DeadlineOf>
    void run_those(const std::vector<std::size_t>& which, DeadlineOf deadline_of, std::size_t threads,
                   const std::function<void()>& beside) {
        const std::size_t others = beside ? 1 : 0;
        const auto one = [&](std::size_t i) {
            if (i < others) return beside();
            build(which[i - others], deadline_of(which[i - others]));
        };
        parallel::workers{which.size() + others, one}.run(threads);
        if (best_.empty() || state_.abandoned()) return;
        // After a stop request, there is no time to check a schedule.
        if (state_.limits().stop.stop_requested() && !state_.objective().is_unlimited()) return;
        const auto& best = best_.front();
        const auto& name = jobs_[best.job].name;
        if (state_.is_improvement(best.value)) state_.try_strategy(name, [&] { state_.offer_timed(best.made, name); });
    }
    template <class Predicate> [[nodiscard]] std::vector<std::size_t> jobs_that(Predicate is_meant) const {
        std::vector<std::size_t> which;
        for (std::size_t k = 0; k < jobs_.size(); ++k)
            if (is_meant(jobs_[k])) which.push_back(k);
        return which;
    }
    /// Sorts jobs by the best schedule with their storage option, the most promising first. If there is no deadline,
    /// keeps only the jobs of the best `most_options` options.
    [[nodiscard]] std::vector<std::size_t> promising(std::vector<std::size_t> which, std::size_t most_options) {
        const auto best = best_by_option();
        std::stable_sort(which.begin(), which.end(), [&](std::size_t a, std::size_t b) {
            return best.at(jobs_[a].option) < best.at(jobs_[b].option);
        });
        if (!has_deadline()) keep_first_options(which, most_options);
        return which;
    }
    /// Moves jobs to the front if no schedule has their storage option yet.
    [[nodiscard]] std::vector<std::size_t> untried_first(std::vector<std::size_t> which) const {
        const auto best = best_by_option();
        std::stable_partition(which.begin(), which.end(),
                              [&](std::size_t k) { return best.at(jobs_[k].option).is_unlimited(); });
        return which;
    }
    /// The best objective with each storage option. Unlimited without a schedule.
    [[nodiscard]] std::map<std::string, duration> best_by_option() const {
        std::map<std::string, duration> best;
        for (std::size_t k = 0; k < jobs_.size(); ++k) {
            auto& objective = best.try_emplace(jobs_[k].option, duration::unlimited()).first->second;
            objective = std::min(objective, results_[k].objective.value_or(duration::unlimited()));
        }
        return best;
    }
    void keep_first_options(std::vector<std::size_t>& which, std::size_t most) {
        std::vector<std::string> kept;
        std::erase_if(which, [&](std::size_t k) {
            const auto& option = jobs_[k].option;
            if (option.empty()) return false; // the job of a builder that chooses options itself
            if (std::find(kept.begin(), kept.end(), option) != kept.end()) return false;
            if (kept.size() == most) {
                skip(k, "other storage options did better");
                return true;
            }
            kept.push_back(option);
            return false;
        });
    }
    void skip(std::size_t k, std::string_view reason) {
        if (!results_[k].method.empty()) return; // the job has run before
        results_[k].method = jobs_[k].name;
        results_[k].published = jobs_[k].published;
        results_[k].why.sentence = "skipped: " + std::string{reason};
    }
    [[nodiscard]] std::vector<search_start> starts() {
        std::vector<search_start> result;
        for (auto& each : best_)
            result.push_back({std::move(each.made), each.value.objective});
        return result;
    }
    void build(std::size_t k, std::chrono::steady_clock::time_point until) {
        if (state_.limits().processor) state_.limits().processor->pause_if_over(state_.limits().stop, until);
        if (state_.abandoned() || is_too_late(jobs_[k].stoppable, until)) return skip(k, "there was no time left");
        auto& result = results_[k];
        result.method = jobs_[k].name;
        result.published = jobs_[k].published;
        const stopwatch watch;
        outcome<schedule> made{refusal{.sentence = "broke a contract"}};
        state_.try_strategy(result.method, [&] {
            made = jobs_[k].build(state_.problem(), stop_check{state_.limits().stop, until});
            if (made && !state_.problem().overlaps.empty())
                made = with_most_distinct_pairs(state_.problem(), *made, state_.limits().most_distinct_pairs);
        });
        const auto seconds = watch.seconds();
        jobs_[k].is_finished = std::chrono::steady_clock::now() < until;
        result.seconds += seconds;
        if (made || made.why().reason != refusal_reason::does_not_apply) log_.add(result.method, seconds);
        const auto value = made ? value_of(state_.problem(), *made) : schedule_value{};
        if (made)
            result.objective = std::min(value.objective, result.objective.value_or(value.objective));
        else if (!result.objective)
            result.why = made.why();
        const std::scoped_lock lock{mutex_};
        if (!jobs_[k].stoppable) pass_ = std::max(pass_, seconds);
        if (made) keep({k, value, *std::move(made)});
    }
    /// Adds a schedule to the best schedules. Among schedules with equal objectives, only the first schedule is kept.
    void keep(found made) {
        const auto most = is_described_by_costs(state_.problem()) ? 1 : with_.starts;
        const auto equal = std::find_if(best_.begin(), best_.end(), [&](const found& other) {
            return other.value.objective - made.value.objective <= state_.slack() &&
                   made.value.objective - other.value.objective <= state_.slack();
        });
        if (equal != best_.end() && equal->comes_before(made)) return;
        if (equal != best_.end()) best_.erase(equal);
        const auto behind =
            std::find_if(best_.begin(), best_.end(), [&](const found& other) { return made.comes_before(other); });
        best_.insert(behind, std::move(made));
        if (best_.size() > most) best_.pop_back();
    }
    /// Whether a builder must be skipped. Builders without stop check run unless they would take more than `moment` on
    /// a large problem. Builders with a stop check are skipped if too little time is left to offer a schedule or to
    /// build the first.
    bool is_too_late(bool stoppable, std::chrono::steady_clock::time_point until) {
        const bool stops = state_.limits().stop.stop_requested();
        const std::scoped_lock lock{mutex_};
        const bool any = !best_.empty() || !state_.objective().is_unlimited();
        if (stops && (any || stoppable)) return true;
        const auto after = any ? with_.to_offer : with_.to_build_and_offer;
        const auto expected = std::chrono::duration<double>{(1.0 + after) * pass_};
        const auto left = until - std::chrono::steady_clock::now();
        return expected > (stoppable ? left : left + with_.moment);
    }

    search_state& state_;
    std::vector<builder_job> jobs_;
    run_log& log_;
    std::vector<builder_result> results_;
    std::mutex mutex_{};
    std::vector<found> best_{}; ///< the best schedules with different objectives, sorted by objective
    builder_parameters with_{};
    /// The longest time that a builder without stop check has taken, in seconds.
    double pass_;
};

} // namespace detail

/// Runs the published builders concurrently and offers the best schedule. Builders without stop check run first,
/// because they are fast. If none of the fast builders finds a schedule, `between.if_none_fits` is called. Builders
/// with a stop check run after builders without one. Builders that search run last. All builders with a stop check are
/// stopped after a share of the remaining time. With a deadline, `between.run_constructive` runs beside the builders
/// that search, if stashes are only kept or offloaded as a whole. Builders that would exceed the deadline are skipped.
///
/// With other storage options, each builder runs with each option that all stages have. Among options that differ only
/// in a transfer, only the first is tried: the builder decides about transfers. The constructive planner is the first
/// builder that searches, with a few trials. With a deadline, the constructive planner then runs with all its effort,
/// in equal shares per option. The options with the best schedules come first, and builders with the very first option
/// get the most time.
///
/// Runs on the threads of the caller's arena.
inline built_schedules run_published_builders(search_state& state, const std::vector<std::string>& without,
                                              std::size_t threads, run_log& log, const between_builders& between) {
    auto jobs = is_described_by_costs(state.problem()) ? detail::published_builders(state.problem(), without)
                                                       : detail::uniform_storage_builders(state.problem(), without);
    return detail::builder_runner{state, std::move(jobs), log}.run(threads, between);
}

} // namespace optpipe
