#pragma once

#include "optpipe/core/deadline.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_divisions.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/planner/partition/parameters.hpp"
#include "optpipe/planner/partition/partition_plan.hpp"
#include "optpipe/planner/partition/partition_space.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Bounds on the partitions of all pipelines.
struct bounds_of_pipelines {
    /// A lower bound on the objectives of the partitions of all pipelines.
    duration least = duration::unlimited();
    /// For each pipeline, a partition with an objective that may be near the bound. Empty if none was found.
    std::vector<layer_division> near{};
};

/// Bounds the partitions of all pipelines by the loads of ranks. Every pipeline gets an equal part of `bound_share` of
/// the time limit. Then raises the least bound, for `order_share` of the time limit.
template <class SpaceOf>
[[nodiscard]] bounds_of_pipelines bound_of_all(std::size_t pipelines, SpaceOf space_of, const plan_options& options) {
    constexpr double unlimited = std::numeric_limits<double>::infinity();
    constexpr partition_parameters with;
    const auto start = std::chrono::steady_clock::now();
    const auto limit = options.time_limit.value_or(std::chrono::duration<double>{unlimited});
    std::vector<std::pair<std::size_t, partition_bound>> some;
    for (std::size_t i = 0; i < pipelines; ++i) {
        const partition_space& space = space_of(i);
        if (space.is_empty()) continue;
        auto& each = some.emplace_back(i, partition_bound{space}).second;
        const auto part = with.bound_share * static_cast<double>(i + 1) / static_cast<double>(pipelines);
        const stop_check late{options.stop, deadline_after(start, part * limit)};
        while (!each.has_loads() && !late())
            each.raise_once(late);
    }
    const stop_check late{options.stop, deadline_after(std::chrono::steady_clock::now(), with.order_share * limit)};
    const auto least = [&]() -> partition_bound* {
        const auto found = std::min_element(some.begin(), some.end(), [](const auto& a, const auto& b) {
            return a.second.found().bound < b.second.found().bound;
        });
        return found == some.end() ? nullptr : &found->second;
    };
    while (auto* const next = least()) {
        if (next->is_done() || late()) break;
        next->raise_once(late);
    }
    bounds_of_pipelines found;
    found.near.resize(pipelines);
    for (const auto& [i, each] : some) {
        found.least = std::min(found.least, each.found().bound);
        found.near[i] = each.found().division;
    }
    return found;
}

/// Raises the plan's bound to at least min(`bound`, objective). Contract: `bound` holds for the plan's problem.
inline void raise_bound(plan_result& plan, duration bound) {
    plan.bound = std::min(std::max(plan.bound, bound), plan.objective);
    plan.gap = relative_gap(plan.objective, plan.bound);
    if (plan.bound >= plan.objective) plan.why = plan_end::optimal;
}

/// Plans partitions of the layers among the stages of the pipelines (see `plan_partition`).
class partition_search {
public:
    partition_search(const partition_problem& p, const plan_options& options) : options_{options}, cuts_{cuts_of(p)} {
        for (std::size_t i = 0; i < p.pipelines.size(); ++i)
            pipelines_.push_back({partition_space{p, cuts_, i}, {}, {}, {}, {}, {}});
        for (const auto& each : pipelines_)
            count_ += std::min(each.space.count(with_.most_listed), with_.most_listed + 1);
        are_few_ = count_ <= with_.most_listed && cuts_.are_all();
    }

    outcome<partition_plan> run() {
        const auto space_of = [this](std::size_t i) -> const partition_space& { return pipelines_[i].space; };
        bound_of_all_ = bound_of_all(pipelines_.size(), space_of, options_);
        const auto for_bound = elapsed();
        if (time_limit_) time_limit_ = std::max(*time_limit_ - for_bound, seconds{});
        begin_ = clock::now();
        if (time_limit_) search_until_ = *time_limit_ * with_.search_share;
        if (const auto why = begin()) return *why;
        bool may_have_more = search();
        while (time_limit_ && left().count() > 0.0 && !options_.stop.stop_requested() && !is_near_enough()) {
            if (!plan_longer() && !may_have_more) break;
            search_until_ = elapsed() + with_.search_share * left();
            may_have_more = search();
        }
        auto& best = *std::min_element(planned_.begin(), planned_.end());
        const auto proven = proven_bound();
        finish(best.planned, proven);
        auto result = pipelines_[best.pipeline].space.plan_of(best.layers, std::move(best.planned));
        result.bound = proven;
        result.tried = planned_.size();
        result.seconds = (for_bound + elapsed()).count();
        return result;
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    struct candidate {
        std::size_t pipeline = 0;
        layer_division layers{};
        plan_result planned{};
        /// Whether all neighbours of this partition have been considered.
        bool is_exhausted = false;
        friend bool operator<(const candidate& a, const candidate& b) {
            return a.planned.objective < b.planned.objective;
        }
    };
    struct neighbour {
        layer_division layers{};
        duration bound{};
    };
    /// One of the pipelines, and the results for it.
    struct choice {
        partition_space space;
        /// Partitions that were tried, or whose bounds are known.
        std::set<layer_division> seen;
        /// Untried partitions whose bounds are known. The partitions that were added last are at the end. Partitions
        /// that were added together are in descending order of bounds. Among partitions with equal bounds, the most
        /// even partition is last.
        std::vector<neighbour> neighbours;
        /// The best candidate of the pipeline, if it has one.
        std::optional<std::size_t> best;
        /// Time limit of the pipeline's short plans, known after the first plan.
        std::optional<seconds> short_limit;
        /// Whether all partitions of the pipeline have been seen.
        bool is_listed = false;
        /// The least bound of the partitions that aren't planned although schedules may fit in memory.
        duration unplanned = duration::unlimited();
    };

    [[nodiscard]] auto is_late() const {
        return stop_when{[this] { return !may_go_on(); }};
    }
    /// Whether a stop was requested, or `part` seconds have passed. If there is no time limit, `part` is ignored.
    [[nodiscard]] auto is_after(seconds part) const {
        return stop_when{[this, part] { return options_.stop.stop_requested() || (time_limit_ && elapsed() >= part); }};
    }

    /// Makes the first plans. Without a plan, returns the refusal of the partition that lacks the least memory.
    std::optional<refusal> begin() {
        std::optional<refusal> refused;
        std::optional<memory_size> least;
        for (std::size_t i = 0; i < pipelines_.size(); ++i) {
            if (!pipelines_[i].space.exists()) {
                pipelines_[i].is_listed = cuts_.are_all();
                continue;
            }
            const auto over = is_after(first_part() * static_cast<double>(i + 1));
            for (const auto& each : beginnings(i, over)) {
                const auto lacks = pipelines_[i].space.shortage_of(pipelines_[i].space.with(each));
                const auto why = lacks.all > memory_size{} ? lacks.why : try_partition(i, each);
                if (why && (!least || lacks.all < *least)) {
                    least = lacks.all;
                    refused = why;
                }
            }
        }
        for (auto& each : pipelines_)
            if (each.best) look_around(*each.best);
        return planned_.empty() ? refused : std::nullopt;
    }
    /// A pipeline's initial partitions (`partition_space::beginnings`), and the partition near its bound, if any.
    [[nodiscard]] std::vector<layer_division> beginnings(std::size_t pipeline, stop_check stop) const {
        auto some =
            pipelines_[pipeline].space.beginnings(with_.most_neighbours, with_.most_looked_at, with_.most_fitted, stop);
        const auto& near = bound_of_all_.near[pipeline];
        if (!near.empty() && std::find(some.begin(), some.end(), near) == some.end()) some.push_back(near);
        return some;
    }
    /// Tries partitions while there is time. Returns false if no partition is left that may be the best.
    bool search() {
        while (may_go_on() && !is_near_enough())
            if (!try_most_promising()) return false;
        return true;
    }

    [[nodiscard]] seconds elapsed() const { return clock::now() - begin_; }
    /// Contract: there is a time limit.
    [[nodiscard]] seconds left() const { return *time_limit_ - elapsed(); }
    [[nodiscard]] plan_options options_for(std::optional<seconds> limit) const {
        auto how = options_;
        how.time_limit = limit;
        how.start.reset();
        how.progress = {};
        return how;
    }
    /// Plans a partition. Returns the refusal if there is no plan.
    std::optional<refusal> try_partition(std::size_t pipeline, const layer_division& layers) {
        auto& of = pipelines_[pipeline];
        of.seen.insert(layers);
        auto planned = plan(of.space.with(layers), options_for(short_limit(of)));
        if (!planned) {
            const auto late = is_late();
            of.unplanned = std::min(of.unplanned, of.space.bound_of_unplanned(layers, late));
            return planned.why();
        }
        if (time_limit_ && !of.short_limit) of.short_limit = time_enough(*planned);
        effort_ += planned->why == plan_end::optimal ? with_.short_work : 1.0;
        planned_.push_back({pipeline, layers, *std::move(planned)});
        if (!of.best || planned_.back() < planned_[*of.best]) of.best = planned_.size() - 1;
        return std::nullopt;
    }
    [[nodiscard]] std::optional<seconds> short_limit(const choice& of) const {
        if (!time_limit_) return of.short_limit;
        return of.short_limit ? std::min(*of.short_limit, std::max(left(), seconds{})) : first_part();
    }
    /// The time limit of the first plan of each pipeline.
    [[nodiscard]] seconds first_part() const {
        if (!time_limit_) return {};
        return *time_limit_ * with_.search_share / with_.first_part / static_cast<double>(pipelines_.size());
    }
    [[nodiscard]] seconds time_enough(const plan_result& first) const {
        const auto near = first.objective * (1.0 + with_.nearness);
        double took = first.seconds;
        for (const auto& step : first.history)
            if (step.objective <= near) took = std::min(took, step.seconds);
        const seconds all = *time_limit_ * with_.search_share;
        if (are_few_) took = std::min(took, all.count() / static_cast<double>(count_));
        return std::max(all / with_.most_plans_in_time, seconds{took});
    }
    [[nodiscard]] bool may_go_on() const {
        if (options_.stop.stop_requested()) return false;
        if (!time_limit_) return effort_ < with_.most_plans * static_cast<double>(pipelines_.size());
        return elapsed() < search_until_;
    }

    [[nodiscard]] duration best_objective() const {
        return std::min_element(planned_.begin(), planned_.end())->planned.objective;
    }
    /// Whether the best plan is within the requested gap of the bound on all partitions.
    [[nodiscard]] bool is_near_enough() const { return (1.0 - options_.gap) * best_objective() <= proven_bound(); }
    /// A bound on the schedules of all partitions. The bound follows from the partitions' work and, if all partitions
    /// are listed, from the bound of each. Skipped partitions have bounds of at least the best objective.
    [[nodiscard]] duration proven_bound() const {
        auto least = best_objective();
        for (const auto& each : pipelines_) {
            if (!each.is_listed) return std::min(bound_of_all_.least, least);
            least = std::min(least, each.unplanned);
            for (const auto& other : each.neighbours)
                least = std::min(least, other.bound);
        }
        for (const auto& each : planned_)
            least = std::min(least, each.planned.bound);
        return std::max(std::min(bound_of_all_.least, best_objective()), least);
    }
    /// Raises the plan's bound to the bound on all partitions. If a stop was requested and the bound is below the
    /// objective, `best.why` becomes `stop_request`.
    void finish(plan_result& best, duration bound) const {
        raise_bound(best, bound);
        if (best.bound < best.objective && options_.stop.stop_requested()) best.why = plan_end::stop_request;
    }

    /// Adds the partitions of `some`, with their bounds, to the neighbours of a pipeline. Returns whether there was
    /// time for all of `some`.
    bool add(choice& to, std::vector<layer_division> some) const {
        const auto late = is_late();
        std::vector<neighbour> found;
        bool is_whole = true;
        for (auto& each : some) {
            is_whole = is_whole && may_go_on();
            if (!is_whole) break;
            const auto bound = to.space.bound_of(each, late);
            to.seen.insert(each);
            if (bound.is_unlimited())
                to.unplanned = std::min(to.unplanned, to.space.bound_of_unplanned(each, late));
            else
                found.push_back({std::move(each), bound});
        }
        std::stable_sort(found.begin(), found.end(), [&](const neighbour& a, const neighbour& b) {
            return to.space.rounded(a.bound) < to.space.rounded(b.bound);
        });
        to.neighbours.insert(to.neighbours.end(), found.rbegin(), found.rend());
        return is_whole;
    }
    /// Adds the unseen neighbours of a candidate, and their bounds.
    void look_around(std::size_t at) {
        const auto late = is_late();
        auto& of = pipelines_[planned_[at].pipeline];
        auto some = of.space.most_even_neighbours(planned_[at].layers, of.seen, with_.most_neighbours, late);
        const bool are_all = some.size() < with_.most_neighbours && may_go_on();
        planned_[at].is_exhausted = add(of, std::move(some)) && are_all;
        effort_ += with_.short_work;
    }
    /// Adds all unseen partitions of a pipeline, and their bounds.
    void list_all(choice& of) const {
        const auto late = is_late();
        std::set<std::pair<std::vector<std::int64_t>, layer_division>> some;
        of.space.for_each(late, [&](const layer_division& each) {
            if (!of.seen.contains(each)) some.emplace(of.space.unevenness_of(each), each);
        });
        std::vector<layer_division> rest;
        for (const auto& [unevenness, each] : some)
            rest.push_back(each);
        of.is_listed = add(of, std::move(rest)) && may_go_on();
    }
    /// Adds partitions when no neighbour of the best candidates is promising. If there are few partitions, adds all
    /// partitions of a pipeline. If there are many partitions, adds the neighbours of the best candidate that isn't
    /// exhausted. Returns false if there is nothing to add.
    bool look_farther() {
        if (are_few_) {
            const auto next =
                std::find_if(pipelines_.begin(), pipelines_.end(), [](const choice& each) { return !each.is_listed; });
            if (next == pipelines_.end()) return false;
            list_all(*next);
            return true;
        }
        std::optional<std::size_t> next;
        for (std::size_t i = 0; i < planned_.size(); ++i)
            if (!planned_[i].is_exhausted && (!next || planned_[i] < planned_[*next])) next = i;
        if (next) look_around(*next);
        return next.has_value();
    }
    /// Drops neighbours whose bounds are no better than the best objective. Returns whether a neighbour is left.
    bool has_promising(choice& of) const {
        const auto best = best_objective();
        while (!of.neighbours.empty() && !is_less(of.neighbours.back().bound, best))
            of.neighbours.pop_back();
        return !of.neighbours.empty();
    }
    /// Plans the most promising neighbour. In the first part of the time, pipelines take turns. In the remaining time,
    /// only neighbours of the best candidate's pipeline are planned. Returns false if no partition is left that may be
    /// the best.
    bool try_most_promising() {
        auto next = has_time_for_all() ? next_pipeline_++ % pipelines_.size()
                                       : std::min_element(planned_.begin(), planned_.end())->pipeline;
        for (std::size_t i = 0; i < pipelines_.size() && !has_promising(pipelines_[next]); ++i)
            next = (next + 1) % pipelines_.size();
        auto& of = pipelines_[next];
        if (!has_promising(of)) return look_farther();
        const auto layers = std::move(of.neighbours.back().layers);
        const auto before = of.best;
        of.neighbours.pop_back();
        try_partition(next, layers);
        if (of.best != before) look_around(*of.best);
        return true;
    }
    [[nodiscard]] bool has_time_for_all() const {
        if (time_limit_) return elapsed() < *time_limit_ * with_.search_share * with_.round_robin_share;
        return effort_ < with_.most_plans * static_cast<double>(pipelines_.size()) * with_.round_robin_share;
    }
    [[nodiscard]] static bool is_less(duration a, duration b) { return a + tolerance{}.at(b) < b; }
    /// Whether a longer search may make the candidate's plan better than the best plan.
    [[nodiscard]] static bool is_open(const candidate& each, duration best) {
        return each.planned.why == plan_end::time_limit && is_less(each.planned.bound, best);
    }

    /// Plans the most promising candidate in all the time that is left. The most promising candidate has the least
    /// objective + bound: short plans of large problems say little about their partition. Returns false if there was no
    /// candidate or no time.
    bool plan_longer() {
        const auto promise = [](const candidate& each) { return each.planned.objective + each.planned.bound; };
        candidate* next = nullptr;
        for (auto& each : planned_)
            if (is_open(each, best_objective()) && (!next || promise(each) < promise(*next))) next = &each;
        const auto now = left();
        if (!next || now.count() <= 0.0 || options_.stop.stop_requested()) return false;
        plan_longer(*next, now);
        find_best();
        return !options_.stop.stop_requested();
    }
    void plan_longer(candidate& each, seconds limit) {
        auto how = options_for(limit);
        how.start = each.planned.schedule;
        how.progress = options_.progress;
        auto planned = plan(pipelines_[each.pipeline].space.with(each.layers), how);
        if (!planned) return;
        // If the longer search found nothing better, the plan keeps the name of its first method.
        auto longer = *std::move(planned);
        const auto keep_name = [&](std::string& method) {
            if (method == start_method) method = each.planned.method;
        };
        keep_name(longer.method);
        for (auto& by : longer.contributions)
            keep_name(by.name);
        each.planned = std::move(longer);
    }
    /// Finds the best candidate of each pipeline after candidates have changed.
    void find_best() {
        for (auto& each : pipelines_)
            each.best.reset();
        for (std::size_t i = 0; i < planned_.size(); ++i)
            if (auto& best = pipelines_[planned_[i].pipeline].best; !best || planned_[i] < planned_[*best]) best = i;
    }

    static constexpr partition_parameters with_{};

    const plan_options& options_;
    layer_cuts cuts_;
    /// The search begins after the bound on all partitions was computed. The time limit is for the search alone.
    clock::time_point begin_ = clock::now();
    std::optional<seconds> time_limit_ = options_.time_limit;
    std::vector<choice> pipelines_;
    std::vector<candidate> planned_;
    /// Number of partitions of all pipelines, or any number above `most_listed` if there are more.
    std::size_t count_ = 0;
    /// Whether all partitions can be listed.
    bool are_few_ = false;
    bounds_of_pipelines bound_of_all_;
    /// The time at which the search for new partitions ends, if there is a time limit.
    seconds search_until_{};
    /// The work of all plans until now. Used if there is no time limit.
    double effort_ = 0.0;
    /// The next pipeline of the rotation.
    std::size_t next_pipeline_ = 0;
};

} // namespace optpipe::detail
