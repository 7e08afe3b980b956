#pragma once

#include "optpipe/milp/search/crew.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/run_log.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/evaluate.hpp"

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

struct builder_task {
    std::string name;
    std::function<outcome<schedule>(const problem&)> build;
    /// About how often the time of the cheapest it takes.
    double cost = 1.0;
};

/// As measured at 64 ranks × 512 microbatches.
constexpr double builder_cost(std::string_view name) {
    if (name == v_auto.name) return 250.0;
    if (name == v_half.name || name == v_min.name) return 100.0;
    if (name == zero_bubble_auto.name || name == zero_bubble_v.name) return 50.0;
    if (name == pipe_offload.name || name == pipe_offload_half.name || name == pipe_offload_full.name) return 50.0;
    return 1.0;
}

inline std::vector<builder_task> published_builders(const std::vector<std::string>& without) {
    std::vector<builder_task> tasks;
    for_each_builder([&](const auto& build) {
        const std::string name{build.name};
        if constexpr (!std::is_same_v<std::decay_t<decltype(build)>, adaptive_builder<>>)
            if (std::find(without.begin(), without.end(), name) == without.end())
                tasks.push_back(
                    {name, [build](const problem& p) { return build_schedule(p, build); }, builder_cost(name)});
    });
    return tasks;
}

/// Runs builders on several threads and keeps the best of what they make: the first of them where several are equal,
/// whichever is ready first.
class builder_runs {
public:
    builder_runs(search_board& board, std::vector<builder_task> tasks, run_log& log)
        : board_{board}, tasks_{std::move(tasks)}, log_{log}, results_(tasks_.size()) {
        for (std::size_t k = 0; k < tasks_.size(); ++k)
            by_cost_.push_back(k);
        std::stable_sort(by_cost_.begin(), by_cost_.end(),
                         [&](std::size_t a, std::size_t b) { return tasks_[a].cost < tasks_[b].cost; });
    }

    std::vector<builder_result> run(std::size_t threads) {
        const auto is_slow = [&](std::size_t k) { return tasks_[k].cost > slow; };
        const auto middle = std::find_if(by_cost_.begin(), by_cost_.end(), is_slow);
        run({by_cost_.begin(), middle}, threads);
        run({middle, by_cost_.end()}, threads);
        return std::move(results_);
    }

private:
    struct found {
        std::size_t task = 0;
        duration objective{};
        schedule made{};
    };

    /// What they made is offered once all of them are done, so that the best has the credit.
    void run(const std::vector<std::size_t>& which, std::size_t threads) {
        const auto one = [&](std::size_t i) { build(which[i]); };
        milp::search::crew{which.size(), one}.run(threads);
        if (best_) board_.offer(best_->made, tasks_[best_->task].name);
    }
    void build(std::size_t k) {
        auto& result = results_[k];
        result.method = tasks_[k].name;
        if (is_too_late(tasks_[k].cost)) {
            result.why.sentence = "left out, the time limit is too short for it";
            return;
        }
        const stopwatch watch;
        auto made = tasks_[k].build(board_.to_solve());
        result.seconds = watch.seconds();
        if (made || made.why().reason != refusal_reason::does_not_apply) log_.add(result.method, result.seconds);
        if (made)
            result.objective = objective_of(board_.to_solve(), *made);
        else
            result.why = made.why();
        const std::scoped_lock lock{mutex_};
        if (tasks_[k].cost <= 1.0) unit_ = std::max(unit_, result.seconds);
        if (!made) return;
        const auto objective = *result.objective;
        if (!best_ || objective < best_->objective || (objective == best_->objective && k < best_->task))
            best_ = found{k, objective, *std::move(made)};
    }
    /// Builders can't be interrupted. The cheap ones are run whatever the time.
    bool is_too_late(double cost) {
        if (cost <= 1.0) return false;
        const std::scoped_lock lock{mutex_};
        const auto expected = std::chrono::duration<double>(cost * unit_);
        const auto left = board_.limits().deadline - std::chrono::steady_clock::now();
        return board_.limits().stop.stop_requested() || expected > left;
    }

    static constexpr double slow = 50.0;

    search_board& board_;
    std::vector<builder_task> tasks_;
    run_log& log_;
    std::vector<std::size_t> by_cost_{};
    std::vector<builder_result> results_;
    std::mutex mutex_{};
    std::optional<found> best_{};
    double unit_ = 0.0;
};

} // namespace detail

/// Runs the published builders side by side, cheapest first, and offers the best schedule to the board. What each
/// reached, in the order of `all_builders`. Those that would go beyond the deadline are left out.
///
/// Runs on the threads of the arena that the caller is in.
inline std::vector<builder_result> run_published_builders(search_board& board, const std::vector<std::string>& without,
                                                          std::size_t threads, run_log& log) {
    return detail::builder_runs{board, detail::published_builders(without), log}.run(threads);
}

} // namespace optpipe
