#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
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
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#endif

namespace optpipe {

/// A partition of a model's layers among the stages of a pipeline, and its plan.
struct partition_plan {
    /// How many layers each stage holds, in the order of the model.
    std::vector<std::size_t> layers{};
    /// The pipeline with these layers (`with_layers`), which the plan is for.
    problem pipeline{};
    plan_result planned{};
    /// No schedule of any partition is shorter: work can't be divided more evenly than among all ranks, nor a layer at
    /// all. `planned.bound` holds for this partition alone.
    duration bound{};
    /// Partitions that were planned.
    std::size_t tried = 0;
};

/// Divides the layers of a model among the stages of the pipeline `p` so that the step becomes short: evenly
/// first, by number and by work, then moving one layer at a time from one stage to another as long as the plan gets
/// shorter. Costs and storage of `p` are replaced, and its memory limits are those of the devices, as by `with_layers`.
///
/// The time limit is that of all plans together. `options.start` isn't used, and `progress` is called only once the
/// partition is chosen, for the rest of the time limit. Where one microbatch at a time fits in no partition that was
/// tried, the refusal names the rank that lacks the most memory in the one that lacks least. Throws `input_error` where
/// there are fewer layers than stages, or for a pipeline that `validate` objects to.
[[nodiscard]] outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                     const plan_options& options = {});

#if OPTPIPE_DEFINES(planner)

namespace detail {

/// How partitions are looked for. Where nothing else is said they were chosen when it was written, not tuned.
struct partition_parameters {
    /// Of a time limit: for short plans of many partitions. The rest goes into the best ones.
    double search_share = 0.5;
    /// The first plan takes one part of that in so many; the others as long as the first one took to come this near to
    /// what it reached in the end, as on large problems the first schedules say little, and no less than one part in
    /// `most_plans_in_time`.
    double first_part = 4.0;
    double nearness = 0.01;
    double most_plans_in_time = 40.0;
    /// Partitions that are planned for longer, half of them each time for twice as long (successive halving): few, as
    /// every plan begins anew. Of 12 pipelines drawn at random 2 led to steps 1.2 % shorter than 4, in 5 s.
    std::size_t finalists = 2;
    /// Without a time limit a plan takes a second or a few: so many are made.
    std::size_t most_plans = 8;
    /// Neighbours whose bounds are looked at, the most even ones: of 16 stages and more there are hundreds.
    std::size_t most_neighbours = 64;
};

class partition_search {
public:
    using counts = std::vector<std::size_t>;

    partition_search(const problem& p, std::span<const layer_costs> layers, const plan_options& options)
        : pipeline_{p}, layers_{layers}, options_{options} {
        const auto stages = p.graph.stages();
        if (layers.size() < stages)
            throw input_error{"plan_partition",
                              {{"layers", std::to_string(layers.size()) + " for " + std::to_string(stages) +
                                              " stages, each of which takes one at least"}}};
        if (options.time_limit) short_limit_ = *options.time_limit * with_.search_share / with_.first_part;
        work_.push_back({});
        for (const auto& each : layers)
            work_.push_back(work_.back() + each.costs.work());
    }

    outcome<partition_plan> run() {
        const auto begin = beginnings();
        if (!begin) return begin.why();
        std::optional<refusal> refused;
        for (const auto& each : *begin)
            if (const auto why = try_partition(each)) refused = why;
        if (planned_.empty()) return *refused;
        while (improve()) {
        }
        if (options_.time_limit) plan_longer();
        auto& best = best_candidate();
        return partition_plan{best.layers, with(best.layers), std::move(best.planned), bound(), planned_.size()};
    }

private:
    using clock = std::chrono::steady_clock;

    struct candidate {
        counts layers{};
        plan_result planned{};
        friend bool operator<(const candidate& a, const candidate& b) {
            return a.planned.objective < b.planned.objective;
        }
    };

    [[nodiscard]] problem with(const counts& each) const { return with_layers(pipeline_, layers_, each); }
    /// The load of each rank, the largest first: of two partitions the lesser one is more even.
    std::vector<duration> loads_of(const counts& each) const {
        std::vector<duration> loads(pipeline_.graph.ranks());
        std::size_t end = 0;
        for (const stage s : pipeline_.graph.all_stages()) {
            const auto begin = end;
            end += each[s.position()];
            loads[pipeline_.rank_of(s).position()] += work_[end] - work_[begin];
        }
        std::sort(loads.rbegin(), loads.rend());
        return loads;
    }
    /// What the ranks lack for one microbatch at a time, and the one that lacks most.
    struct shortage {
        memory_size all{};
        refusal why{};
    };
    shortage shortage_of(const problem& p) const {
        const auto slack = tolerance{}.at(pipeline_.memory_scale());
        shortage result;
        memory_size most{};
        for (const rank r : p.graph.all_ranks()) {
            const auto lacks = least_memory(p, r).needed - p.memory_limit[r];
            if (lacks <= slack && p.memory_limit[r] > memory_size{}) continue;
            result.all += lacks;
            if (lacks <= most) continue;
            most = lacks;
            result.why.reason = refusal_reason::over_memory;
            result.why.sentence = "no partition fits";
            result.why.rank = r;
            result.why.limit = pipeline_.memory_limit[r];
            result.why.needed = result.why.limit + lacks;
        }
        return result;
    }
    /// Calls `look(neighbour)` for every partition that has one layer in another stage.
    template <class Look> static void for_each_neighbour(const counts& of, const Look& look) {
        for (std::size_t from = 0; from < of.size(); ++from)
            for (std::size_t to = 0; to < of.size() && of[from] > 1; ++to) {
                if (from == to) continue;
                auto moved = of;
                --moved[from];
                ++moved[to];
                look(moved);
            }
    }
    counts even() const {
        counts each;
        const even_layers split{.total = layers_.size()};
        for (const stage s : pipeline_.graph.all_stages())
            each.push_back(split.layers_of(s, pipeline_.graph.stages()));
        return each;
    }
    /// Moves a layer as long as that makes `value_of` less, the least first.
    template <class Value> counts descend(counts each, const Value& value_of) const {
        for (auto best = value_of(each);;) {
            const auto before = each;
            for_each_neighbour(before, [&](const counts& moved) {
                if (auto found = value_of(moved); found < best) {
                    best = std::move(found);
                    each = moved;
                }
            });
            if (each == before) return each;
        }
    }
    /// As many layers on each stage, and work as even as it can be; if neither fits, what does.
    outcome<std::vector<counts>> beginnings() const {
        std::vector<counts> some;
        const auto add = [&](counts each) {
            const auto lacks = shortage_of(with(each));
            if (lacks.all <= memory_size{}) some.push_back(std::move(each));
            return lacks.why;
        };
        add(even());
        auto balanced = descend(even(), [this](const counts& of) { return loads_of(of); });
        if (some.empty() || balanced != some.front()) add(balanced);
        if (!some.empty()) return some;
        const auto why =
            add(descend(std::move(balanced), [this](const counts& of) { return shortage_of(with(of)).all; }));
        if (some.empty()) return why;
        return some;
    }

    plan_options options_for(std::optional<std::chrono::duration<double>> limit) const {
        auto how = options_;
        how.time_limit = limit;
        how.start.reset();
        how.progress = {};
        return how;
    }
    /// The refusal, if there is no plan.
    std::optional<refusal> try_partition(const counts& each) {
        tried_.insert(each);
        auto planned = plan(with(each), options_for(short_limit_));
        if (!planned) return planned.why();
        if (options_.time_limit && planned_.empty()) short_limit_ = time_enough(*planned);
        planned_.push_back({each, *std::move(planned)});
        return std::nullopt;
    }
    std::chrono::duration<double> time_enough(const plan_result& first) const {
        const auto near = first.objective * (1.0 + with_.nearness);
        double seconds = first.seconds;
        for (const auto& step : first.history)
            if (step.objective <= near) seconds = std::min(seconds, step.seconds);
        const std::chrono::duration<double> least =
            *options_.time_limit * with_.search_share / with_.most_plans_in_time;
        return std::max(least, std::chrono::duration<double>{seconds});
    }
    candidate& best_candidate() { return *std::min_element(planned_.begin(), planned_.end()); }
    [[nodiscard]] bool may_go_on() const {
        if (options_.stop.stop_requested()) return false;
        if (!options_.time_limit) return planned_.size() < with_.most_plans;
        return clock::now() - begin_ < *options_.time_limit * with_.search_share;
    }

    /// Plans neighbours of the best whose bounds leave them a chance, the lowest bound first, until one is better.
    bool improve() {
        const auto layers = best_candidate().layers;
        const auto objective = best_candidate().planned.objective;
        const auto is_better = [&](duration other) { return other + tolerance{}.at(objective) < objective; };
        std::vector<std::pair<std::vector<duration>, counts>> neighbours;
        for_each_neighbour(layers, [&](const counts& moved) {
            if (!tried_.contains(moved)) neighbours.emplace_back(loads_of(moved), moved);
        });
        std::sort(neighbours.begin(), neighbours.end());
        std::vector<std::pair<duration, counts>> promising;
        for (std::size_t i = 0; i < std::min(neighbours.size(), with_.most_neighbours) && may_go_on(); ++i) {
            const auto p = with(neighbours[i].second);
            if (shortage_of(p).all > memory_size{}) continue;
            const auto bound = bounds_of(p, [this] { return !may_go_on(); }).best();
            if (is_better(bound)) promising.emplace_back(bound, neighbours[i].second);
        }
        std::sort(promising.begin(), promising.end());
        for (const auto& [bound, each] : promising) {
            if (!may_go_on()) return false;
            if (!try_partition(each) && is_better(planned_.back().planned.objective)) return true;
        }
        return false;
    }
    /// The most promising for longer, half of them each time: what is short already, and whose bound leaves room.
    void plan_longer() {
        for (auto kept = with_.finalists; kept > 0 && !options_.stop.stop_requested(); kept /= 2) {
            std::sort(planned_.begin(), planned_.end(), [kept](const candidate& a, const candidate& b) {
                if (kept == 1) return a < b;
                return a.planned.objective + a.planned.bound < b.planned.objective + b.planned.bound;
            });
            const auto count = std::min(kept, planned_.size());
            const std::chrono::duration<double> left = *options_.time_limit - (clock::now() - begin_);
            for (std::size_t i = 0; i < count; ++i)
                plan_longer(planned_[i], left / static_cast<double>(count > 1 ? 2 * count : 1), count == 1);
        }
    }
    void plan_longer(candidate& each, std::chrono::duration<double> limit, bool is_last) {
        if (each.planned.why == plan_end::optimal || limit.count() <= 0.0) return;
        auto how = options_for(limit);
        how.start = each.planned.schedule;
        if (is_last) how.progress = options_.progress;
        if (auto planned = plan(with(each.layers), how)) each.planned = *std::move(planned);
    }
    [[nodiscard]] duration bound() const {
        const auto& g = pipeline_.graph;
        auto largest = work_.back() / static_cast<double>(g.ranks());
        for (const auto& each : layers_)
            largest = std::max(largest, each.costs.work());
        return static_cast<double>(g.microbatches()) * largest;
    }

    static constexpr partition_parameters with_{};

    const problem& pipeline_;
    std::span<const layer_costs> layers_;
    const plan_options& options_;
    clock::time_point begin_ = clock::now();
    /// Of the first so many layers.
    std::vector<duration> work_;
    /// Of short plans.
    std::optional<std::chrono::duration<double>> short_limit_{};
    std::set<counts> tried_;
    std::vector<candidate> planned_;
};

} // namespace detail

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                      const plan_options& options) {
    return detail::partition_search{p, layers, options}.run();
}

#endif

} // namespace optpipe
