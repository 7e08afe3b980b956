#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"

#include <cstddef>
#include <span>
#include <vector>

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#endif

namespace optpipe {

/// A partition of a model's layers among the stages of a pipeline, and its plan.
struct partition_plan {
    /// Index of the pipeline that the plan is for.
    std::size_t chosen = 0;
    /// Number of layers of each of its stages, in the order of the model.
    std::vector<std::size_t> layers{};
    /// The pipeline with these layers (`with_layers`), for which `planned` is the plan.
    problem pipeline{};
    plan_result planned{};
    /// No schedule of any partition is shorter: the work can't be divided more evenly than equally among all ranks, and
    /// a layer can't be divided. If all partitions were considered, the least of their bounds also counts.
    /// `planned.bound` holds for this partition only.
    duration bound{};
    /// Number of partitions that were planned.
    std::size_t tried = 0;
    /// Seconds of the whole search; `planned.seconds` counts only those of the plan.
    double seconds = 0.0;
};

/// Divides the layers of a model among the stages of one of the pipelines so that the step becomes short. Starts with
/// partitions that are even, by number of layers and by work, then moves one layer at a time from one stage to another,
/// in the order of the resulting bounds. If there are few partitions, all that may be shorter are tried, and the best
/// one is proven.
///
/// The time limit holds for all plans together; the search ends earlier if nothing is left to try or to prove.
/// `options.start` isn't used. `progress` is called only for the partition that is planned last in a round. If one
/// microbatch at a time fits in no tried partition, the refusal is the one of the partition with the least shortage,
/// and names the rank with the largest shortage in it. Throws `input_error` if `validate` rejects the problem.
[[nodiscard]] outcome<partition_plan> plan_partition(const partition_problem& p, const plan_options& options = {});

/// Divides the layers among the stages of one pipeline, `p`; its stages stay on their ranks.
[[nodiscard]] outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                     const plan_options& options = {});

#if OPTPIPE_DEFINES(planner)

namespace detail {

/// How partitions are searched. Not tuned, unless a comment says otherwise.
struct partition_parameters {
    /// Share of the time limit for short plans of many partitions, in (0, 1); the rest is for the best partitions.
    double search_share = 0.5;
    /// Share of that time in which all pipelines are planned in rotation; the rest is for the pipeline that is best
    /// then.
    double round_robin_share = 0.5;
    /// The first plans of all pipelines together take 1 / `first_part` of that time. Each later plan takes as long as
    /// the first one of its pipeline needed to come within `nearness` (relative) of its final objective, because the
    /// first schedules of large problems say little; and at least 1 / `most_plans_in_time` of that time.
    double first_part = 4.0;
    double nearness = 0.01;
    double most_plans_in_time = 40.0;
    /// Number of partitions that are planned for longer; each round keeps half of them and doubles their time
    /// (successive halving). It is small because every plan starts anew: on 12 random pipelines, 2 led to 1.2 % shorter
    /// steps than 4, in 5 s.
    std::size_t finalists = 2;
    /// Work for each pipeline without a time limit, in plans of up to a few seconds. A plan that is proven, and the
    /// bounds of a partition's neighbours, count as `short_work`.
    double most_plans = 8.0;
    double short_work = 0.125;
    /// Limit up to which all partitions of the pipelines are listed: their bounds take a second or two for 16 stages
    /// with 64 microbatches.
    std::size_t most_listed = 256;
    /// Number of neighbours of a partition whose bounds are computed, the most even first: with 16 stages or more there
    /// are hundreds.
    std::size_t most_neighbours = 64;
    /// Number of partitions whose work is compared to find the initial ones of a pipeline, and number of partitions
    /// that are tested to fit: with hundreds of stages this would otherwise take minutes.
    std::size_t most_looked_at = 1'000'000;
    std::size_t most_fitted = 10'000;
};

/// Number of layers of each stage.
using layer_counts = std::vector<std::size_t>;

/// Calls `look(neighbour)` for every partition that differs by one layer moved to another stage, until `stop()`.
template <class Look> void for_each_neighbour(layer_counts of, stop_check stop, const Look& look) {
    for (std::size_t from = 0; from < of.size(); ++from)
        for (std::size_t to = 0; to < of.size() && of[from] > 1; ++to) {
            if (from == to) continue;
            if (stop()) return;
            --of[from];
            ++of[to];
            look(std::as_const(of));
            ++of[from];
            --of[to];
        }
}

/// The partitions of a model's layers among the stages of one pipeline. Nothing here plans.
class partition_space {
public:
    partition_space(const problem& p, std::span<const layer_costs> layers) : pipeline_{p}, layers_{layers} {
        work_.push_back({});
        for (const auto& each : layers)
            work_.push_back(work_.back() + each.costs.work());
    }

    /// The memory that all ranks together lack for one microbatch at a time, and the refusal of the rank that lacks
    /// most.
    struct shortage {
        memory_size all{};
        refusal why{};
    };

    [[nodiscard]] problem with(const layer_counts& each) const { return with_layers(pipeline_, layers_, each); }
    /// A time in units of the tolerance, so that sums of the same layers in different orders are equal.
    [[nodiscard]] std::int64_t rounded(duration load) const {
        const auto units = load / tolerance{}.at(work_.back());
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        return units < static_cast<double>(most) ? std::llround(units) : most;
    }
    [[nodiscard]] layer_counts even() const {
        layer_counts each;
        const even_layers split{.total = layers_.size()};
        for (const stage s : pipeline_.graph.all_stages())
            each.push_back(split.layers_of(s, pipeline_.graph.stages()));
        return each;
    }
    /// The unevenness of a partition: the loads of the ranks, the largest first, then those of the stages. The lesser
    /// of two partitions is more even.
    [[nodiscard]] std::vector<std::int64_t> unevenness_of(const layer_counts& each) const {
        std::vector<duration> ranks(pipeline_.graph.ranks());
        std::vector<duration> stages;
        std::size_t end = 0;
        for (const stage s : pipeline_.graph.all_stages()) {
            const auto begin = end;
            end += each[s.position()];
            stages.push_back(work_[end] - work_[begin]);
            ranks[pipeline_.rank_of(s).position()] += stages.back();
        }
        std::vector<std::int64_t> loads;
        for (auto* some : {&ranks, &stages}) {
            std::sort(some->rbegin(), some->rend());
            for (const auto load : *some)
                loads.push_back(rounded(load));
        }
        return loads;
    }
    [[nodiscard]] shortage shortage_of(const problem& p) const {
        const auto slack = tolerance{}.at(p.memory_scale());
        shortage result;
        memory_size most{};
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = least_memory(p, r).needed;
            const bool is_enough = needed <= p.memory_limit[r] + slack && !needed.is_unlimited();
            if (is_enough && p.memory_limit[r] >= memory_size{}) continue;
            const auto lacks = needed.is_unlimited() ? p.memory_scale() : needed - p.memory_limit[r];
            result.all += lacks;
            if (lacks <= most) continue;
            most = lacks;
            result.why.rank = r;
            result.why.sentence = "no partition that was tried fits";
            if (needed.is_unlimited()) {
                result.why.reason = refusal_reason::over_host_memory;
                result.why.limit = p.host_memory_limit[r];
                result.why.needed = least_host_memory(p, r);
                continue;
            }
            result.why.reason = refusal_reason::over_memory;
            result.why.limit = pipeline_.memory_limit[r];
            result.why.needed = result.why.limit + lacks;
        }
        return result;
    }
    /// No schedule of the partition is shorter; unlimited if one microbatch at a time doesn't fit.
    [[nodiscard]] duration bound_of(const layer_counts& each, stop_check stop) const {
        const auto p = with(each);
        return shortage_of(p).all > memory_size{} ? duration::unlimited() : bounds_of(p, stop).best();
    }
    /// At most `most` neighbours that aren't in `without`, those with the most even work.
    [[nodiscard]] std::vector<layer_counts> most_even_neighbours(const layer_counts& of,
                                                                 const std::set<layer_counts>& without,
                                                                 std::size_t most, stop_check stop) const {
        std::set<std::pair<std::vector<std::int64_t>, layer_counts>> some;
        for_each_neighbour(of, stop, [&](const layer_counts& each) {
            if (without.contains(each)) return;
            some.emplace(unevenness_of(each), each);
            if (some.size() > most) some.erase(std::prev(some.end()));
        });
        std::vector<layer_counts> neighbours;
        for (const auto& [unevenness, each] : some)
            neighbours.push_back(each);
        return neighbours;
    }
    /// The number of partitions, or a number above `most` if there are more.
    [[nodiscard]] std::size_t count(std::size_t most) const {
        const auto gaps = layers_.size() - 1; // between layers; all stages but the first begin at one
        const auto begun = pipeline_.graph.stages() - 1;
        std::size_t found = 1;
        for (std::size_t k = 1; k <= std::min(begun, gaps - begun) && found <= most; ++k)
            found = found * (gaps - k + 1) / k;
        return found;
    }
    /// Calls `look` for every partition, until `stop()`.
    template <class Look> void for_each(stop_check stop, const Look& look) const {
        layer_counts each(pipeline_.graph.stages(), 1);
        each.back() = layers_.size() - each.size() + 1;
        do {
            if (stop()) return;
            look(std::as_const(each));
        } while (next_partition(each));
    }
    /// The initial partitions, if they fit: equally many layers on each stage; then the most even work; then, from
    /// there, the least bound. If none fits, the partition with the least shortage, which need not fit either. Computes
    /// the bounds of `neighbours` neighbours per partition, the work of `most` partitions in total, and whether
    /// `most_fitted` partitions fit; until `stop()`.
    [[nodiscard]] std::vector<layer_counts> beginnings(std::size_t neighbours, std::size_t most,
                                                       std::size_t most_fitted, stop_check stop) const {
        const auto lacks = [this](const layer_counts& of) { return shortage_of(with(of)).all; };
        std::size_t looked_at = 0;
        const stop_when enough{[&] { return looked_at++ >= most || stop(); }};
        const auto all = [&](const layer_counts& of, const auto& look) { for_each_neighbour(of, enough, look); };
        const auto near = [&](const layer_counts& of, const auto& look) {
            for (const auto& each : most_even_neighbours(of, {}, neighbours, enough))
                if (!stop()) look(each);
        };
        const auto balanced = descend(even(), all, [this](const layer_counts& of) { return unevenness_of(of); });
        const auto bounded = descend(balanced, near, [&](const layer_counts& of) {
            return std::pair{rounded(bound_of(of, stop)), unevenness_of(of)};
        });
        std::vector<layer_counts> some;
        for (const auto& each : {even(), balanced, bounded})
            if (std::find(some.begin(), some.end(), each) == some.end() && lacks(each) <= memory_size{})
                some.push_back(each);
        if (some.empty()) some.push_back(least_shortage({even(), balanced}, most_fitted, lacks, stop));
        return some;
    }
    /// No schedule of any partition is shorter.
    [[nodiscard]] duration bound() const {
        const auto& g = pipeline_.graph;
        auto largest = work_.back() / static_cast<double>(g.ranks());
        for (const auto& each : layers_)
            largest = std::max(largest, each.costs.work());
        return static_cast<double>(g.microbatches()) * largest;
    }

private:
    /// Moves to the neighbour with the least value as long as the value decreases. `for_each(of, look)` calls
    /// `look(neighbour)`.
    template <class ForEach, class Value>
    [[nodiscard]] static layer_counts descend(layer_counts each, const ForEach& for_each, const Value& value_of) {
        for (auto best = value_of(each);;) {
            const auto before = each;
            for_each(before, [&](const layer_counts& moved) {
                if (auto found = value_of(moved); found < best) {
                    best = std::move(found);
                    each = moved;
                }
            });
            if (each == before) return each;
        }
    }
    /// The partition with the least shortage: of all if there are few, else of those on the descents from `from`.
    template <class Lacks>
    [[nodiscard]] layer_counts least_shortage(const std::vector<layer_counts>& from, std::size_t most,
                                              const Lacks& lacks, stop_check stop) const {
        auto least = memory_size::unlimited();
        auto found = from.front();
        std::size_t looked_at = 0;
        const stop_when is_enough{[&] { return least <= memory_size{} || looked_at >= most || stop(); }};
        const stop_check enough{is_enough};
        const auto look = [&](const layer_counts& each) {
            ++looked_at;
            const auto lack = lacks(each);
            if (lack < least) found = each;
            least = std::min(least, lack);
            return lack;
        };
        const auto near = [&](const layer_counts& of, const auto& look_at) { for_each_neighbour(of, enough, look_at); };
        for (const auto& each : from)
            if (!enough()) static_cast<void>(descend(each, near, look));
        for_each(enough, look);
        return found;
    }
    /// Advances to the next partition in lexicographic order; false if it was the last.
    [[nodiscard]] static bool next_partition(layer_counts& each) {
        for (std::size_t s = each.size(); s-- > 1;) {
            if (each[s] == 1) continue;
            const auto rest = each[s] - 1;
            each[s] = 1;
            each.back() = rest;
            ++each[s - 1];
            return true;
        }
        return false;
    }

    const problem& pipeline_;
    std::span<const layer_costs> layers_;
    /// The work of the first n layers, for every n.
    std::vector<duration> work_;
};

class partition_search {
public:
    partition_search(const partition_problem& p, const plan_options& options) : options_{options} {
        for (const auto& each : p.pipelines)
            pipelines_.push_back({partition_space{each, p.layers}, {}, {}, {}, {}, {}});
        std::size_t all = 0;
        for (const auto& each : pipelines_)
            all += std::min(each.space.count(with_.most_listed), with_.most_listed + 1);
        are_few_ = all <= with_.most_listed;
    }

    outcome<partition_plan> run() {
        if (options_.time_limit) search_until_ = *options_.time_limit * with_.search_share;
        if (const auto why = begin()) return *why;
        bool may_have_more = search();
        while (options_.time_limit && left().count() > 0.0 && !options_.stop.stop_requested() && !is_near_enough()) {
            if (!plan_longer() && !may_have_more) break;
            search_until_ = elapsed() + with_.search_share * left();
            may_have_more = search();
        }
        auto& best = *std::min_element(planned_.begin(), planned_.end());
        const auto proven = proven_bound();
        finish(best.planned, proven);
        const auto& space = pipelines_[best.pipeline].space;
        return partition_plan{best.pipeline, best.layers,     space.with(best.layers), std::move(best.planned),
                              proven,        planned_.size(), elapsed().count()};
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    struct candidate {
        std::size_t pipeline = 0;
        layer_counts layers{};
        plan_result planned{};
        /// Whether all of its neighbours have been considered.
        bool is_exhausted = false;
        friend bool operator<(const candidate& a, const candidate& b) {
            return a.planned.objective < b.planned.objective;
        }
    };
    struct neighbour {
        layer_counts layers{};
        duration bound{};
    };
    /// One of the pipelines, and the results for it.
    struct choice {
        partition_space space;
        /// Partitions that were tried, or whose bounds are known.
        std::set<layer_counts> seen;
        /// Partitions that weren't tried. The latest additions are behind the others; among them the least bound is
        /// last, and of equal bounds the most even.
        std::vector<neighbour> neighbours;
        /// The best candidate of the pipeline, if it has one.
        std::optional<std::size_t> best;
        /// Time limit of its short plans, known after the first.
        std::optional<seconds> short_limit;
        /// Whether all of its partitions have been seen.
        bool is_listed = false;
    };

    [[nodiscard]] auto is_late() const {
        return stop_when{[this] { return !may_go_on(); }};
    }
    /// Whether `part` of the time limit has passed (never without a limit), or a stop was requested.
    [[nodiscard]] auto is_after(seconds part) const {
        return stop_when{
            [this, part] { return options_.stop.stop_requested() || (options_.time_limit && elapsed() >= part); }};
    }

    /// Makes the first plans. If none exists, returns the refusal of the partition with the least shortage.
    std::optional<refusal> begin() {
        std::optional<refusal> refused;
        std::optional<memory_size> least;
        for (std::size_t i = 0; i < pipelines_.size(); ++i) {
            const auto over = is_after(first_part() * static_cast<double>(i + 1));
            for (const auto& each :
                 pipelines_[i].space.beginnings(with_.most_neighbours, with_.most_looked_at, with_.most_fitted, over)) {
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
    /// Tries partitions while time allows, or until none is left that may be the best; false in the latter case.
    bool search() {
        while (may_go_on() && !is_near_enough())
            if (!try_most_promising()) return false;
        return true;
    }

    [[nodiscard]] seconds elapsed() const { return clock::now() - begin_; }
    /// Contract: there is a time limit.
    [[nodiscard]] seconds left() const { return *options_.time_limit - elapsed(); }
    [[nodiscard]] plan_options options_for(std::optional<seconds> limit) const {
        auto how = options_;
        how.time_limit = limit;
        how.start.reset();
        how.progress = {};
        return how;
    }
    /// Plans a partition; returns the refusal if there is no plan.
    std::optional<refusal> try_partition(std::size_t pipeline, const layer_counts& layers) {
        auto& of = pipelines_[pipeline];
        of.seen.insert(layers);
        auto planned = plan(of.space.with(layers), options_for(short_limit(of)));
        if (!planned) return planned.why();
        if (options_.time_limit && !of.short_limit) of.short_limit = time_enough(*planned);
        effort_ += planned->why == plan_end::optimal ? with_.short_work : 1.0;
        planned_.push_back({pipeline, layers, *std::move(planned)});
        if (!of.best || planned_.back() < planned_[*of.best]) of.best = planned_.size() - 1;
        return std::nullopt;
    }
    [[nodiscard]] std::optional<seconds> short_limit(const choice& of) const {
        if (!options_.time_limit) return of.short_limit;
        return of.short_limit ? std::min(*of.short_limit, std::max(left(), seconds{})) : first_part();
    }
    /// The time limit of the first plan of each pipeline.
    [[nodiscard]] seconds first_part() const {
        if (!options_.time_limit) return {};
        return *options_.time_limit * with_.search_share / with_.first_part / static_cast<double>(pipelines_.size());
    }
    [[nodiscard]] seconds time_enough(const plan_result& first) const {
        const auto near = first.objective * (1.0 + with_.nearness);
        double took = first.seconds;
        for (const auto& step : first.history)
            if (step.objective <= near) took = std::min(took, step.seconds);
        const seconds least = *options_.time_limit * with_.search_share / with_.most_plans_in_time;
        return std::max(least, seconds{took});
    }
    [[nodiscard]] bool may_go_on() const {
        if (options_.stop.stop_requested()) return false;
        if (!options_.time_limit) return effort_ < with_.most_plans * static_cast<double>(pipelines_.size());
        return elapsed() < search_until_;
    }

    [[nodiscard]] duration best_objective() const {
        return std::min_element(planned_.begin(), planned_.end())->planned.objective;
    }
    /// Whether the best plan is within the requested gap of the bound on all partitions.
    [[nodiscard]] bool is_near_enough() const { return (1.0 - options_.gap) * best_objective() <= proven_bound(); }
    /// A bound on the schedules of all partitions: by their work and, if all partitions are listed, by the bound of
    /// each. Skipped partitions have bounds of at least the best objective.
    [[nodiscard]] duration proven_bound() const {
        // The bound by work doesn't depend on the placements, in which the pipelines differ.
        const auto by_work = pipelines_.front().space.bound();
        auto least = best_objective();
        for (const auto& each : pipelines_) {
            if (!each.is_listed) return std::min(by_work, least);
            for (const auto& other : each.neighbours)
                least = std::min(least, other.bound);
        }
        for (const auto& each : planned_)
            least = std::min(least, each.planned.bound);
        return std::max(std::min(by_work, best_objective()), least);
    }
    /// Sets the plan's bound to the larger of two: its own and `bound`, which holds for all partitions. If a stop
    /// request cut the search for partitions short, the request is also the plan's reason to end.
    void finish(plan_result& best, duration bound) const {
        best.bound = std::min(std::max(best.bound, bound), best.objective);
        best.gap = relative_gap(best.objective, best.bound);
        if (best.bound >= best.objective)
            best.why = plan_end::optimal;
        else if (options_.stop.stop_requested())
            best.why = plan_end::stop_request;
    }

    /// Adds partitions with their bounds to the neighbours of a pipeline. Returns whether there was time for all of
    /// them.
    bool add(choice& to, std::vector<layer_counts> some) const {
        const auto late = is_late();
        std::vector<neighbour> found;
        bool is_whole = true;
        for (auto& each : some) {
            is_whole = is_whole && may_go_on();
            if (!is_whole) break;
            const auto bound = to.space.bound_of(each, late);
            to.seen.insert(each);
            if (!bound.is_unlimited()) found.push_back({std::move(each), bound});
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
        std::set<std::pair<std::vector<std::int64_t>, layer_counts>> some;
        of.space.for_each(late, [&](const layer_counts& each) {
            if (!of.seen.contains(each)) some.emplace(of.space.unevenness_of(each), each);
        });
        std::vector<layer_counts> rest;
        for (const auto& [unevenness, each] : some)
            rest.push_back(each);
        of.is_listed = add(of, std::move(rest)) && may_go_on();
    }
    /// Adds partitions farther away once no neighbour is promising: all partitions if there are few, else the
    /// neighbours of the best candidate that has others. False if there are none.
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
    /// Drops the neighbours whose bounds leave no chance to be the best. Returns whether one is left.
    bool has_promising(choice& of) const {
        const auto best = best_objective();
        while (!of.neighbours.empty() && !is_less(of.neighbours.back().bound, best))
            of.neighbours.pop_back();
        return !of.neighbours.empty();
    }
    /// Plans the most promising neighbour: at first of each pipeline in rotation, then of the pipeline with the best
    /// candidate. False if no partition is left that may be the best.
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
        if (options_.time_limit) return elapsed() < *options_.time_limit * with_.search_share * with_.round_robin_share;
        return effort_ < with_.most_plans * static_cast<double>(pipelines_.size()) * with_.round_robin_share;
    }
    [[nodiscard]] static bool is_less(duration a, duration b) { return a + tolerance{}.at(b) < b; }
    /// Whether more time for a candidate's plan may make it better than the best.
    [[nodiscard]] static bool is_open(const candidate& each, duration best) {
        return each.planned.why == plan_end::time_limit && is_less(each.planned.bound, best);
    }

    /// Plans the most promising candidates for longer, half of them each round: the sum of objective and bound ranks
    /// them, in the last round the objective. False if there was no candidate or no time.
    bool plan_longer() {
        bool has_open = false;
        for (auto kept = with_.finalists; kept > 0 && !options_.stop.stop_requested(); kept /= 2) {
            const auto open =
                std::stable_partition(planned_.begin(), planned_.end(),
                                      [best = best_objective()](const candidate& each) { return is_open(each, best); });
            std::sort(planned_.begin(), open, [kept](const candidate& a, const candidate& b) {
                if (kept == 1) return a < b;
                return a.planned.objective + a.planned.bound < b.planned.objective + b.planned.bound;
            });
            const auto count = std::min(kept, static_cast<std::size_t>(open - planned_.begin()));
            const auto now = left();
            if (count == 0 || now.count() <= 0.0) break;
            has_open = true;
            for (std::size_t i = 0; i < count; ++i)
                plan_longer(planned_[i], now / static_cast<double>(count > 1 ? 2 * count : 1), count == 1);
        }
        find_best();
        return has_open && !options_.stop.stop_requested();
    }
    void plan_longer(candidate& each, seconds limit, bool is_last) {
        auto how = options_for(limit);
        how.start = each.planned.schedule;
        if (is_last) how.progress = options_.progress;
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
    clock::time_point begin_ = clock::now();
    std::vector<choice> pipelines_;
    std::vector<candidate> planned_;
    /// Whether all partitions can be listed.
    bool are_few_ = false;
    /// End of the search for other partitions, with a time limit.
    seconds search_until_{};
    /// Work of the plans until now, without a time limit.
    double effort_ = 0.0;
    /// The next pipeline of the rotation.
    std::size_t next_pipeline_ = 0;
};

} // namespace detail

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const partition_problem& p, const plan_options& options) {
    if (auto found = validate(p); !found.empty()) throw input_error{"plan_partition", std::move(found)};
    return detail::partition_search{p, options}.run();
}

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                      const plan_options& options) {
    return plan_partition(partition_problem{{layers.begin(), layers.end()}, {p}}, options);
}

#endif

} // namespace optpipe
