#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/milp/search/parallel/workers.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/builders/uniform_storage.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe {

namespace detail {

struct builder_job {
    std::string name;
    std::function<outcome<schedule>(const problem&, stop_check)> build;
    /// Its time as a multiple of the cheapest builder's.
    double cost = 1.0;
    bool published = true;
};

/// About how often the time of the cheapest it takes, as measured at 64 ranks × 512 microbatches.
constexpr double builder_cost(std::string_view name) {
    if (name == v_auto.name) return 250.0;
    if (name == v_half.name || name == v_min.name) return 100.0;
    if (name == zero_bubble_auto.name || name == zero_bubble_v.name) return 50.0;
    if (name == pipe_offload.name || name == pipe_offload_half.name || name == pipe_offload_full.name) return 50.0;
    return 1.0;
}

/// The same for a problem of this shape: those that look for a group try as many as there are ranks, each on as much of
/// the step as a group or two take. For thousands of ranks that is far more than the step itself.
inline double builder_cost(std::string_view name, const problem& p) {
    const bool groups = name.starts_with(gis.name) || name.starts_with(pipe_offload.name);
    if (!groups) return builder_cost(name);
    const auto ranks = static_cast<double>(p.graph.ranks());
    const auto share = std::min(1.0, 2.0 * ranks / static_cast<double>(p.graph.microbatches()));
    constexpr double of_the_cheapest = 0.125; // to look at a part of the step
    return builder_cost(name) * std::max(1.0, of_the_cheapest * ranks * share);
}

inline std::vector<builder_job> published_builders(const problem& p, const std::vector<std::string>& without) {
    std::vector<builder_job> jobs;
    for_each_builder([&](const auto& build) {
        const std::string name{build.name};
        if constexpr (!std::is_same_v<std::decay_t<decltype(build)>, adaptive_builder<>>)
            if (std::find(without.begin(), without.end(), name) == without.end())
                jobs.push_back({name,
                                [build](const problem& q, stop_check stop) { return build_schedule(q, build, stop); },
                                builder_cost(name, p)});
    });
    return jobs;
}

/// Every builder with every storage option that all stages have, in the order of the builders; then those that choose
/// options themselves.
inline std::vector<builder_job> uniform_storage_builders(const problem& p, const std::vector<std::string>& without) {
    std::vector<builder_job> jobs;
    const auto is_left_out = [&](const std::string& name) {
        return std::find(without.begin(), without.end(), name) != without.end();
    };
    for_each_builder([&](const auto& build) {
        const std::string name{build.name};
        if (is_left_out(name)) return;
        auto quick = build;
        if constexpr (std::is_same_v<std::decay_t<decltype(build)>, adaptive_builder<>>) quick.effort = 1;
        for (const auto& option : common_option_names(p)) {
            auto options = *find_common_option(p, option.view());
            auto run = [quick, options = std::move(options)](const problem& q, stop_check stop) {
                return build_uniform_schedule(q, quick, options, stop);
            };
            jobs.push_back({name + ":storage=" + std::string{option.view()}, std::move(run), builder_cost(name, p),
                            name != adaptive.name});
        }
    });
    for_each_storage_builder([&](const auto& build) {
        if (const std::string name{build.name}; !is_left_out(name))
            jobs.push_back(
                {name, [build](const problem& q, stop_check stop) { return build_schedule(q, build, stop); }});
    });
    return jobs;
}

/// Runs builders on several threads and keeps the best schedule: of equal ones that of the first builder, whichever
/// finishes first.
class builder_runner {
public:
    builder_runner(search_state& state, std::vector<builder_job> jobs, run_log& log)
        : state_{state}, jobs_{std::move(jobs)}, log_{log}, results_(jobs_.size()) {
        for (std::size_t k = 0; k < jobs_.size(); ++k)
            by_cost_.push_back(k);
        std::stable_sort(by_cost_.begin(), by_cost_.end(),
                         [&](std::size_t a, std::size_t b) { return jobs_[a].cost < jobs_[b].cost; });
    }

    std::vector<builder_result> run(std::size_t threads) {
        const auto is_slow = [&](std::size_t k) { return jobs_[k].cost > slow; };
        const auto middle = std::find_if(by_cost_.begin(), by_cost_.end(), is_slow);
        run({by_cost_.begin(), middle}, threads);
        run({middle, by_cost_.end()}, threads);
        return std::move(results_);
    }

private:
    struct found {
        std::size_t job = 0;
        duration objective{};
        schedule made{};
    };

    /// Offers only the best once all are done, so that it is credited.
    void run(const std::vector<std::size_t>& which, std::size_t threads) {
        const auto one = [&](std::size_t i) { build(which[i]); };
        milp::search::workers{which.size(), one}.run(threads);
        if (!best_ || state_.abandoned()) return;
        // To check a schedule takes longer than a stop may.
        if (state_.limits().stop.stop_requested() && !state_.objective().is_unlimited()) return;
        const auto& name = jobs_[best_->job].name;
        if (best_->objective < state_.objective())
            state_.try_strategy(name, [&] { state_.offer_timed(best_->made, name); });
    }
    void build(std::size_t k) {
        auto& result = results_[k];
        if (state_.limits().processor) state_.limits().processor->pause_if_over(state_.limits().stop);
        result.method = jobs_[k].name;
        result.published = jobs_[k].published;
        if (state_.abandoned() || is_too_late(jobs_[k].cost)) {
            result.why.sentence = "skipped: there was no time left";
            return;
        }
        const stopwatch watch;
        outcome<schedule> made{refusal{.sentence = "broke a contract"}};
        state_.try_strategy(result.method,
                            [&] { made = jobs_[k].build(state_.problem(), stop_check{state_.limits().stop}); });
        result.seconds = watch.seconds();
        if (made || made.why().reason != refusal_reason::does_not_apply) log_.add(result.method, result.seconds);
        if (made)
            result.objective = objective_of(state_.problem(), *made);
        else
            result.why = made.why();
        const std::scoped_lock lock{mutex_};
        if (jobs_[k].cost <= 1.0) unit_ = std::max(unit_, result.seconds);
        if (!made) return;
        const auto objective = *result.objective;
        if (!best_ || objective < best_->objective || (objective == best_->objective && k < best_->job))
            best_ = found{k, objective, *std::move(made)};
    }
    /// A deadline doesn't interrupt builders, only a stop request does. Cheap ones always run, unless the problem is so
    /// large that they would take more than a moment. What is found must still be offered; if nothing is, something
    /// must be built.
    bool is_too_late(double cost) {
        constexpr std::chrono::duration<double> moment{0.1};
        constexpr double most_cost = 1e4; // minutes, where there is no limit
        constexpr double to_offer = 2.0;
        constexpr double to_build_and_offer = 4.0;
        if (cost > most_cost) return true;
        const bool stops = state_.limits().stop.stop_requested();
        const std::scoped_lock lock{mutex_};
        const bool any = best_ || !state_.objective().is_unlimited();
        if (any && stops) return true;
        const auto after = any ? to_offer : to_build_and_offer;
        const auto expected = std::chrono::duration<double>((cost + after) * unit_);
        const auto left = state_.limits().deadline - std::chrono::steady_clock::now();
        if (cost <= 1.0) return expected > left + moment;
        return stops || expected > left;
    }

    static constexpr double slow = 50.0;

    search_state& state_;
    std::vector<builder_job> jobs_;
    run_log& log_;
    std::vector<std::size_t> by_cost_{};
    std::vector<builder_result> results_;
    std::mutex mutex_{};
    std::optional<found> best_{};
    double unit_ = 0.0;
};

} // namespace detail

/// Runs the published builders concurrently, cheapest first, and offers the best schedule. Returns the result of each
/// in the order of `all_builders`. Builders that would exceed the deadline are skipped.
///
/// With lists of storage options, each builder with each option that all stages have.
///
/// Runs on the threads of the caller's arena.
inline std::vector<builder_result> run_published_builders(search_state& state, const std::vector<std::string>& without,
                                                          std::size_t threads, run_log& log) {
    auto jobs = state.problem().has_storage_options() ? detail::uniform_storage_builders(state.problem(), without)
                                                      : detail::published_builders(state.problem(), without);
    return detail::builder_runner{state, std::move(jobs), log}.run(threads);
}

} // namespace optpipe
