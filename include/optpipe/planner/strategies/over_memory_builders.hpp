#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/published_builders.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/construct/offload_placement.hpp"
#include "optpipe/schedule/construct/offload_search.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// How `over_memory_strategy` chooses the memory to plan for. Factors are multiples of each rank's limit. Not tuned.
struct over_memory_parameters {
    /// Each builder first plans for the memory limit times this factor. With a larger factor, the step is shorter, but
    /// needs more offloading.
    double first_factor = 1.5;
    std::array<double, 2> further_factors{1.25, 2.0};
    /// The factor to try if no schedule for a larger factor can be made to fit in memory.
    double last_factor = 1.1;
    /// At the end, factors around the best factor are tried. The distance from the best factor is halved from
    /// `first_step` down to `finest`.
    double first_step = 0.125;
    double finest = 0.01;
    /// Number of operations that a builder visits per cell (F, I and W, and two passes that time them).
    std::size_t operations_per_cell = 5;
    /// A builder that searches gets at most 1 / `most_of_effort` of the effort, because other builders need effort,
    /// too.
    std::size_t most_of_effort = 8;
    /// Effort of the first call per cell. With a few hundred cells, the call takes some tens of milliseconds.
    std::size_t first_effort_per_cell = 200;
    /// Time share relative to other strategies. The share is small, because each call tries the same few factors.
    double share = 0.5;
    /// Time of a builder and its offload search, in passes through the problem.
    double least_passes = 10.0;
};

namespace detail {

/// Makes published schedules for more memory than there is, and offloads stashes until the schedules fit in memory.
class over_memory_builders {
public:
    over_memory_builders(search_state& state, std::size_t effort)
        : state_{state}, p_{state.problem()}, effort_{effort}, may_offload_(p_.graph.cells()) {
        for (const stage s : p_.graph.all_stages())
            if (p_.whole_offload(s))
                std::fill_n(may_offload_.begin() + static_cast<std::ptrdiff_t>(s.position() * p_.graph.microbatches()),
                            p_.graph.microbatches(), static_cast<unsigned char>(1));
    }

    void run() {
        for_each_builder([&](const auto& build) {
            if (!finished() && !offloads(build.name) && !is_too_late(pass_seconds_)) consider(build);
        });
        std::stable_sort(candidates_.begin(), candidates_.end(),
                         [](const candidate& a, const candidate& b) { return a.undelayed < b.undelayed; });
        for (const auto& one : candidates_)
            search_factor(one);
    }

private:
    static constexpr std::string_view name = "over-memory";

    /// A builder, and the schedule that it made with more memory than there is, before any offloading.
    struct candidate {
        std::string_view builder;
        std::function<outcome<schedule>(const problem&)> build;
        schedule made;
        duration undelayed;
        double seconds;
    };

    /// Whether the builder offloads by itself.
    static bool offloads(std::string_view builder) { return builder == adaptive.name || builder.starts_with("po"); }
    [[nodiscard]] bool finished() const { return spent_ >= effort_ || state_.done(); }

    [[nodiscard]] bool is_too_late(double seconds) const {
        const std::chrono::duration<double> expected{seconds};
        return expected > state_.limits().deadline - std::chrono::steady_clock::now();
    }

    template <class Builder> void consider(Builder build) {
        std::size_t cost = with_.operations_per_cell * may_offload_.size();
        if constexpr (requires { build.effort; }) {
            build.effort = std::min(build.effort, effort_ / with_.most_of_effort);
            cost += build.effort;
        }
        const auto counted = [this, build, cost](const problem& relaxed) {
            spent_ += cost;
            const auto until = builder_deadline(state_.limits(), builder_parameters{}.slice_with_options);
            return build_schedule(relaxed, build, stop_check{state_.limits().stop, until});
        };
        const stopwatch watch;
        auto built = counted(with_memory(with_.first_factor));
        const auto seconds = watch.seconds();
        if (!is_stoppable<Builder>) pass_seconds_ = std::max(pass_seconds_, seconds);
        if (built) {
            const auto undelayed = objective_of(p_, *built);
            candidates_.push_back({build.name, counted, *std::move(built), undelayed, seconds});
        }
    }
    [[nodiscard]] problem with_memory(double factor) const {
        auto relaxed = p_;
        for (auto& limit : relaxed.memory_limit)
            limit = factor * limit;
        for (const stage s : relaxed.graph.all_stages())
            relaxed.set_stage(s, relaxed.costs[s]);
        return relaxed;
    }

    /// Searches the memory factor. Tries a few values, and then values around the best one.
    void search_factor(const candidate& one) {
        double best_factor = with_.first_factor;
        auto best = value_of(one.made);
        const auto attempt = [&](double factor) {
            if (finished() || is_too_late(one.seconds)) return;
            const auto built = one.build(with_memory(factor));
            // Many builders give the same schedule for different memory limits.
            if (!built || built->operations == one.made.operations) return;
            const auto value = value_of(*built);
            if (!(value < best)) return;
            best = value;
            best_factor = factor;
        };
        for (const auto factor : with_.further_factors)
            attempt(factor);
        if (best.is_unlimited()) attempt(with_.last_factor);
        for (double step = with_.first_step; step > with_.finest && !best.is_unlimited(); step *= 0.5) {
            const double middle = best_factor;
            attempt(middle + step);
            attempt(middle - step);
        }
    }
    /// The objective of a schedule after offloading. Unlimited if the schedule doesn't fit in memory or can't be an
    /// improvement.
    duration value_of(const schedule& made) {
        if (finished() || !(objective_of(p_, made) < state_.target())) return duration::unlimited();
        offload_search<any_graph> search{p_, may_offload_};
        const stop_when done{[this] { return state_.done(); }};
        search.run(order_of(made), done);
        spent_ += search.spent();
        const auto value = search.value();
        if (!value.is_unlimited()) state_.offer(std::move(search).take(), name);
        return value;
    }

    search_state& state_;
    const problem& p_;
    std::size_t effort_;
    std::size_t spent_ = 0;
    over_memory_parameters with_{};
    /// The longest time that a builder without stop check has taken, in seconds.
    double pass_seconds_ = 0.0;
    cell_flags may_offload_;
    std::vector<candidate> candidates_{};
};

} // namespace detail

/// Over-memory builders as a strategy. The published builders that don't offload make schedules for up to twice the
/// memory. Then stashes are offloaded until the schedule fits in memory. The effort counts visited operations.
struct over_memory_strategy {
    static constexpr std::string_view name = "over-memory";
    [[nodiscard]] static strategy_traits traits(const problem& p) {
        bool any_may_offload = false;
        for (const stage s : p.graph.all_stages())
            any_may_offload |= p.whole_offload(s) && !p.memory_limit[p.rank_of(s)].is_unlimited();
        const over_memory_parameters with;
        return {.applicable = any_may_offload,
                .first_effort = with.first_effort_per_cell * p.graph.cells(),
                .share = with.share,
                .least_passes = with.least_passes};
    }
    void operator()(search_state& state, const strategy_options& options) const {
        detail::over_memory_builders{state, options.effort}.run();
    }
};
static_assert(check_search_strategy<over_memory_strategy>());

} // namespace optpipe
