#pragma once

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/search_hooks.hpp"
#include "optpipe/formulation/values_of.hpp"
#include "optpipe/milp/solve.hpp"
#include "optpipe/planner/portfolio/linked_stop.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

namespace optpipe {

namespace detail {

/// Solves one model: its incumbents are offered at once, those of other strategies become its cutoff.
class milp_run {
public:
    milp_run(search_state& state, std::string_view name, std::shared_ptr<const formulation::formulated> f)
        : state_{state}, name_{name}, f_{std::move(f)}, stop_{state.limits().stop} {}

    /// First without LP relaxations, which are slow and weak for pure ordering decisions.
    milp::result run(const strategy_options& o, std::chrono::duration<double> time) {
        const auto begin = std::chrono::steady_clock::now();
        constexpr double share_without = 0.75;
        auto result = run_once(o, share_without * time, false);
        if (!std::holds_alternative<milp::stopped>(result.why) || state_.done()) return result;
        return run_once(o, time - (std::chrono::steady_clock::now() - begin), true);
    }

private:
    milp::result run_once(const strategy_options& o, std::chrono::duration<double> time, bool with_relaxations) {
        constexpr std::chrono::duration<double> look_every{0.02};
        milp::solve_options options;
        options.threads = std::max<std::size_t>(1, o.threads);
        options.seed = o.seed;
        options.time_limit = time;
        options.tree_search = with_relaxations;
        options.stop = stop_.token();
        options.shared = &found_;
        options.progress_interval = look_every;
        options.on_progress = [this](const milp::progress& at, milp::solution_sink& sink) { look(at, sink); };
        formulation::search_hooks hooks{f_, state_.bound(), [this](const schedule& s) { state_.offer(s, name_); }};
        auto result = milp::solve(f_->model, options, hooks);
        if (result.incumbent) offer(*result.incumbent);
        return result;
    }
    void look(const milp::progress& at, milp::solution_sink& sink) {
        if (const auto best = found_.read(); best && best->objective < offered_) {
            offered_ = best->objective;
            offer(best->values);
        }
        const bool holds = f_->is_exact || f_->is_pooled;
        if (holds && at.bound > f_->model.lower(milp::variable{0}))
            state_.raise_bound(std::min(duration{at.bound}, state_.objective()), name_);
        if (state_.done()) stop_.request_stop();
        take_from_others(sink);
    }
    void offer(const std::vector<double>& values) {
        if (const auto timed = schedule_of(*f_, values)) state_.offer(*timed, name_);
    }
    void take_from_others(milp::solution_sink& sink) {
        const auto objective = state_.objective();
        if (!(objective.value() < offered_) || !(objective.value() < taken_)) return;
        taken_ = objective.value();
        const auto best = state_.incumbent();
        if (const auto values = values_of(*f_, *best)) sink.offer(*values);
    }

    search_state& state_;
    std::string_view name_;
    std::shared_ptr<const formulation::formulated> f_;
    linked_stop stop_;
    milp::shared_incumbent found_;
    double offered_ = milp::infinity;
    double taken_ = milp::infinity;
};

} // namespace detail

/// The problem as a mixed-integer linear model, solved by this library's solver. With offloading there
/// are three models: first the one without overtaking, for schedules; then the pooled one, for the bound (both are far
/// easier than the exact one); and if these don't meet, the exact one. The objective of the incumbent is the horizon,
/// so only better schedules are feasible.
///
/// An effort of a million is about a second of one thread.
struct milp_strategy {
    static constexpr std::string_view name = "milp";
    /// Larger models are left to other strategies.
    std::size_t most_rows = 150'000;

    [[nodiscard]] strategy_traits traits(const problem& p) const {
        // Each has a row at least; to count them takes as much memory as the model has.
        if (p.has_storage_options() || p.graph.stages() * p.graph.microbatches() > most_rows)
            return {.applicable = false};
        const formulation::operation_table operations{p};
        return {.applicable = !formulation::detail::is_certainly_too_large(operations, options_for(most_rows)),
                // Without offloading, the search without relaxations often finishes within half a second.
                .first_effort = operations.any_may_offload() ? 100'000u : 600'000u};
    }

    void operator()(search_state& state, const strategy_options& options) const {
        using formulation::overtaking;
        const auto begin = clock::now();
        for (const auto discipline : {overtaking::forbidden, overtaking::pooled, overtaking::allowed}) {
            const auto left = time_left(state, options, begin);
            if (state.done() || left.count() <= 0.0) return;
            // Half of the tolerance, so that rounding can't invalidate the proof.
            const auto horizon = state.objective() - 0.5 * state.slack();
            const auto f = model_of(state, discipline, horizon);
            if (!f) return;
            const auto result = detail::milp_run{state, name, *f}.run(options, (*f)->is_exact ? left : share_of(left));
            if ((*f)->is_exact || (*f)->is_pooled) conclude(state, result, horizon);
            if ((*f)->is_exact) return;
        }
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    static seconds time_left(const search_state& state, const strategy_options& options, clock::time_point begin) {
        constexpr double effort_per_second = 1e6;
        const seconds wanted{static_cast<double>(options.effort) / effort_per_second};
        return std::min<seconds>(wanted - (clock::now() - begin), state.limits().deadline - clock::now());
    }
    /// The time share of an inexact model.
    static seconds share_of(seconds left) {
        constexpr double share = 0.4;
        constexpr seconds longest{600.0};
        return std::min(share * left, longest);
    }
    static formulation::options options_for(std::size_t most_rows) {
        formulation::options o;
        o.most_rows = most_rows;
        return o;
    }
    [[nodiscard]] outcome<std::shared_ptr<const formulation::formulated>>
    model_of(const search_state& state, formulation::overtaking discipline, duration horizon) const {
        auto o = options_for(most_rows);
        o.overtaking = discipline;
        o.horizon = horizon;
        o.bound = std::min(state.bound(), horizon);
        return formulation::formulate(state.problem(), o);
    }
    /// Bounds by the optimum, or by the horizon if the model is infeasible.
    static void conclude(search_state& state, const milp::result& result, duration horizon) {
        if (std::holds_alternative<milp::infeasible>(result.why)) state.raise_bound(horizon, name);
        if (std::holds_alternative<milp::optimal>(result.why))
            state.raise_bound(std::min(duration{result.objective}, state.objective()), name);
    }
};
static_assert(check_search_strategy<milp_strategy>());

} // namespace optpipe
