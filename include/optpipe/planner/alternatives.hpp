#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace optpipe {

/// One of several problems, with its bound and its plan, if any.
struct planned_alternative {
    /// A lower bound: no schedule of this problem is shorter.
    duration bound{};
    /// The plan of the problem. Empty if the problem was refused, or dropped because its bound is no better than the
    /// best plan.
    std::optional<plan_result> planned{};
    /// Why the problem has no plan. Empty if the problem has a plan or was dropped.
    std::optional<refusal> refused{};
};

/// The plans of several problems, and the choice among them.
struct alternatives_plan {
    /// One entry per problem, in the order of the problems.
    std::vector<planned_alternative> all{};
    /// The index of the problem whose plan has the shortest step.
    std::size_t chosen = 0;
    /// A lower bound: no schedule of any problem is shorter.
    duration bound{};
    double seconds = 0.0;

    [[nodiscard]] const plan_result& best() const { return *all[chosen].planned; }
};

/// Plans several problems that do the same work in different ways, such as with other microbatch sizes
/// (`costs_by_size`). Chooses the problem whose plan has the shortest step. The time limit covers all problems
/// together. Problems are planned in ascending order of their bounds. A problem is dropped if its bound is no better
/// than the best plan. The problems with the best plans get the remaining time. `options.start` isn't used. The plan of
/// an invalid problem is a refusal. No `input_error` is thrown. Contract: there is at least one problem, and all
/// problems have the same units.
[[nodiscard]] outcome<alternatives_plan> plan_alternatives(std::span<const problem> problems,
                                                           const plan_options& options = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace optpipe {
namespace detail {

/// How the time limit is divided. Not tuned.
struct alternatives_parameters {
    /// Share of the time for first plans of all problems. The problems with the best plans get the remaining time.
    double first_share = 0.5;
    /// Number of problems that the first round plans again. Each round plans half of the previous round's problems
    /// (successive halving).
    std::size_t finalists = 2;
};

class alternatives_search {
public:
    alternatives_search(std::span<const problem> problems, const plan_options& options)
        : problems_{problems}, options_{options} {
        result_.all.resize(problems.size());
    }

    outcome<alternatives_plan> run() {
        plan_first();
        const auto best = find_best();
        if (!best) return worst_lack();
        if (options_.time_limit)
            for (auto kept = with_.finalists; kept > 0; kept /= 2)
                plan_longer(kept);
        result_.chosen = *find_best();
        result_.bound = result_.best().objective;
        for (const auto& each : result_.all)
            result_.bound = std::min(result_.bound, each.bound);
        result_.seconds = elapsed().count();
        return std::move(result_);
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    [[nodiscard]] seconds elapsed() const { return clock::now() - begin_; }
    [[nodiscard]] std::optional<std::size_t> find_best() const {
        std::optional<std::size_t> best;
        for (std::size_t i = 0; i < result_.all.size(); ++i)
            if (const auto& each = result_.all[i].planned;
                each && (!best || each->objective < result_.all[*best].planned->objective))
                best = i;
        return best;
    }
    /// Whether a plan of the problem may be better than the best plan found yet.
    [[nodiscard]] bool is_hopeful(std::size_t i) const {
        const auto best = find_best();
        if (!best) return true;
        const auto objective = result_.all[*best].planned->objective;
        return result_.all[i].bound + tolerance{}.at(objective) < objective;
    }
    [[nodiscard]] static bool lacks_memory(const refusal& why) {
        return why.reason == refusal_reason::over_memory || why.reason == refusal_reason::over_host_memory;
    }
    /// The refusal of the problem whose memory falls short by the least amount.
    [[nodiscard]] refusal worst_lack() const {
        const auto lack = [](const planned_alternative& each) { return each.refused->needed - each.refused->limit; };
        const auto rank_of = [&](const planned_alternative& each) {
            return std::pair{!lacks_memory(*each.refused), lack(each)};
        };
        return *std::min_element(result_.all.begin(), result_.all.end(), [&](const auto& a, const auto& b) {
                    return rank_of(a) < rank_of(b);
                })->refused;
    }

    /// Computes all bounds, then plans the promising problems in ascending order of bounds.
    void plan_first() {
        std::vector<std::size_t> rising(problems_.size());
        std::iota(rising.begin(), rising.end(), std::size_t{0});
        for (const auto i : rising)
            set_bound(i);
        std::stable_sort(rising.begin(), rising.end(),
                         [&](std::size_t a, std::size_t b) { return result_.all[a].bound < result_.all[b].bound; });
        auto limit = options_.time_limit;
        if (limit) limit = with_.first_share / static_cast<double>(problems_.size()) * *limit;
        for (const auto i : rising)
            if (!result_.all[i].refused && is_hopeful(i)) plan_one(i, limit);
    }
    void set_bound(std::size_t i) {
        auto& each = result_.all[i];
        const auto found = validate(problems_[i]);
        if (found.empty()) {
            constexpr double part_for_bounds = 0.25; // most of the time is left for plans, as in `plan`
            const stop_when late{[&] {
                return options_.stop.stop_requested() ||
                       (options_.time_limit && elapsed() > part_for_bounds * *options_.time_limit);
            }};
            each.bound = bounds_of(problems_[i], late).best();
            return;
        }
        each.bound = duration::unlimited();
        each.refused = does_not_apply(found.front().text());
    }
    void plan_one(std::size_t i, std::optional<seconds> limit) {
        auto& each = result_.all[i];
        auto how = options_;
        how.time_limit = limit;
        how.start.reset();
        if (each.planned) how.start = each.planned->schedule;
        auto planned = plan(problems_[i], how);
        if (!planned) {
            if (each.planned) return;
            each.refused = planned.why();
            if (is_plain(problems_[i]) && lacks_memory(*each.refused)) each.bound = duration::unlimited();
            return;
        }
        auto found = *std::move(planned);
        each.bound = std::max(each.bound, found.bound);
        if (each.planned && found.method == start_method) found.method = each.planned->method;
        each.planned = std::move(found);
    }
    /// Plans at most `kept` unsettled problems again: those with the best plans. If `kept` is 1, the best problem gets
    /// all remaining time. If `kept` is larger, the best problems share half of the remaining time.
    void plan_longer(std::size_t kept) {
        std::vector<std::size_t> open;
        for (std::size_t i = 0; i < result_.all.size(); ++i)
            if (const auto& each = result_.all[i].planned; each && each->why == plan_end::time_limit && is_hopeful(i))
                open.push_back(i);
        std::stable_sort(open.begin(), open.end(), [&](std::size_t a, std::size_t b) {
            return result_.all[a].planned->objective < result_.all[b].planned->objective;
        });
        open.resize(std::min(open.size(), kept));
        const auto left = *options_.time_limit - elapsed();
        if (open.empty() || left.count() <= 0.0 || options_.stop.stop_requested()) return;
        const auto share = left / static_cast<double>(kept > 1 ? 2 * open.size() : 1);
        for (const auto i : open)
            if (is_hopeful(i)) plan_one(i, share);
    }

    static constexpr alternatives_parameters with_{};

    std::span<const problem> problems_;
    const plan_options& options_;
    clock::time_point begin_ = clock::now();
    alternatives_plan result_{};
};

} // namespace detail

OPTPIPE_INLINE outcome<alternatives_plan> plan_alternatives(std::span<const problem> problems,
                                                            const plan_options& options) {
    OPTPIPE_EXPECT(!problems.empty(), "plan_alternatives: there must be a problem");
    return detail::alternatives_search{problems, options}.run();
}

} // namespace optpipe
#endif
