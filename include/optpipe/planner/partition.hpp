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

/// Divides the layers of a model among the stages of the pipeline `p` so that the step becomes short: as evenly as
/// possible first, then moving one layer at a time from one stage to another as long as the plan gets shorter. Costs
/// and storage of `p` are replaced, and its memory limits are those of the devices, as by `with_layers`.
///
/// The time limit is that of all plans together. `options.start` isn't used, and `progress` is called only once the
/// partition is chosen, for the rest of the time limit. Where one microbatch at a time fits in no partition that was
/// tried, the refusal names the rank that lacks the most memory in the one that lacks least. Throws `input_error` where
/// there are fewer layers than stages, or for a pipeline that `validate` objects to.
[[nodiscard]] outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                     const plan_options& options = {});

#if OPTPIPE_DEFINES(planner)

namespace detail {

struct partition_parameters {
    /// Of a time limit: for short plans of many partitions. The rest goes into the best one.
    double search_share = 0.6;
    /// A short plan takes one in so many of that.
    std::size_t short_plans = 20;
    /// Without a time limit a plan takes a second or a few: so many are made.
    std::size_t most_plans = 8;
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
        work_.push_back({});
        for (const auto& each : layers)
            work_.push_back(work_.back() + each.costs.work());
    }

    outcome<partition_plan> run() {
        const auto begin = partition_that_fits();
        if (!begin) return begin.why();
        auto first = plan_of(*begin);
        if (!first) return first.why();
        take(*begin, *std::move(first));
        while (improve()) {
        }
        if (options_.time_limit) plan_longer();
        best_.bound = bound();
        return std::move(best_);
    }

private:
    using clock = std::chrono::steady_clock;

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
    counts balanced() const {
        counts each;
        const even_layers even{.total = layers_.size()};
        for (const stage s : pipeline_.graph.all_stages())
            each.push_back(even.layers_of(s, pipeline_.graph.stages()));
        return descend(std::move(each), [this](const counts& of) { return loads_of(of); });
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
    outcome<counts> partition_that_fits() const {
        auto each = balanced();
        if (shortage_of(with(each)).all > memory_size{})
            each = descend(std::move(each), [this](const counts& of) { return shortage_of(with(of)).all; });
        if (const auto left = shortage_of(with(each)); left.all > memory_size{}) return left.why;
        return each;
    }

    plan_options options_for(std::optional<std::chrono::duration<double>> limit) const {
        auto how = options_;
        how.time_limit = limit;
        how.start.reset();
        how.progress = {};
        return how;
    }
    outcome<plan_result> plan_of(const counts& each) {
        ++best_.tried;
        tried_.insert(each);
        std::optional<std::chrono::duration<double>> limit;
        if (options_.time_limit)
            limit = *options_.time_limit * with_.search_share / static_cast<double>(with_.short_plans);
        return plan(with(each), options_for(limit));
    }
    void take(const counts& each, plan_result planned) {
        best_.layers = each;
        best_.pipeline = with(each);
        best_.planned = std::move(planned);
    }
    [[nodiscard]] bool may_go_on() const {
        if (options_.stop.stop_requested()) return false;
        if (!options_.time_limit) return best_.tried < with_.most_plans;
        return clock::now() - begin_ < *options_.time_limit * with_.search_share;
    }

    /// Plans the neighbours whose bounds leave them a chance, the lowest bound first, until one is better.
    bool improve() {
        struct neighbour {
            counts each{};
            duration bound{};
        };
        std::vector<neighbour> some;
        for_each_neighbour(best_.layers, [&](const counts& moved) {
            if (!may_go_on() || tried_.contains(moved)) return;
            const auto p = with(moved);
            if (shortage_of(p).all > memory_size{}) return;
            const auto bound = bounds_of(p, [this] { return !may_go_on(); }).best();
            if (is_better(bound)) some.push_back({moved, bound});
        });
        std::sort(some.begin(), some.end(), [](const neighbour& a, const neighbour& b) {
            return a.bound != b.bound ? a.bound < b.bound : a.each < b.each;
        });
        for (const auto& each : some) {
            if (!may_go_on() || !is_better(each.bound)) return false;
            auto planned = plan_of(each.each);
            if (!planned || !is_better(planned->objective)) continue;
            take(each.each, *std::move(planned));
            return true;
        }
        return false;
    }
    [[nodiscard]] bool is_better(duration objective) const {
        const auto now = best_.planned.objective;
        return objective + tolerance{}.at(now) < now;
    }
    void plan_longer() {
        if (best_.planned.why == plan_end::optimal || options_.stop.stop_requested()) return;
        const std::chrono::duration<double> left = *options_.time_limit - (clock::now() - begin_);
        if (left.count() <= 0.0) return;
        auto how = options_for(left);
        how.start = best_.planned.schedule;
        how.progress = options_.progress;
        if (auto planned = plan(best_.pipeline, how)) take(best_.layers, *std::move(planned));
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
    std::set<counts> tried_;
    partition_plan best_;
};

} // namespace detail

OPTPIPE_INLINE outcome<partition_plan> plan_partition(const problem& p, std::span<const layer_costs> layers,
                                                      const plan_options& options) {
    return detail::partition_search{p, layers, options}.run();
}

#endif

} // namespace optpipe
