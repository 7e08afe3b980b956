#pragma once

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/microbatch_order.hpp"
#include "optpipe/formulation/operation_table.hpp"
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

/// How `milp_strategy` divides its time. Not tuned, unless a comment says otherwise.
struct milp_parameters {
    /// Largest number of rows of a model. Larger models are left to other strategies.
    std::size_t most_rows = 150'000;
    /// Largest number of cells (stages times microbatches) in problems with lists of storage options. Larger problems
    /// are left to other strategies. The strategy proved optimal plans for five of eight problems with 8 to 12 cells in
    /// at most 0.5 s. On two problems with 15 cells, the strategy didn't improve the plan in 25 s.
    std::size_t most_cells_with_options = 12;
    /// Share of a model's time for the search without LP relaxations. Relaxations are slow, and weak if only the order
    /// of operations must be decided.
    double share_without_relaxations = 0.75;
    /// Share of the time for an inexact model, and the longest time for such a model. Inexact models are far easier
    /// than the exact model.
    double share_of_inexact = 0.4;
    std::chrono::duration<double> longest_inexact{600.0};
    /// Time between two exchanges of results with other strategies.
    std::chrono::duration<double> exchange_interval{0.02};
    /// Time of the first call. Without offloading, the search without relaxations often finishes within half a second.
    std::chrono::duration<double> first_with_offloads{0.1};
    std::chrono::duration<double> first_without_offloads{0.6};
};

namespace detail {

/// Solves one model. Incumbents of the solver are offered at once, and the solver gets the incumbents of other
/// strategies.
class milp_run {
public:
    milp_run(search_state& state, std::string_view name, std::shared_ptr<const formulation::formulated> f,
             const milp_parameters& with)
        : state_{state}, name_{name}, f_{std::move(f)}, with_{with}, stop_{state.limits().stop} {}

    /// Solves first without LP relaxations, then with relaxations.
    milp::result run(const strategy_options& o, std::chrono::duration<double> time) {
        const auto begin = std::chrono::steady_clock::now();
        auto result = run_once(o, with_.share_without_relaxations * time, false);
        if (!std::holds_alternative<milp::stopped>(result.why) || state_.done()) return result;
        return run_once(o, time - (std::chrono::steady_clock::now() - begin), true);
    }

private:
    milp::result run_once(const strategy_options& o, std::chrono::duration<double> time, bool with_relaxations) {
        milp::solve_options options;
        options.threads = std::max<std::size_t>(1, o.threads);
        options.seed = o.seed;
        options.time_limit = time;
        options.tree_search = with_relaxations;
        options.stop = stop_.token();
        options.shared = &found_;
        options.progress_interval = with_.exchange_interval;
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
    milp_parameters with_;
    linked_stop stop_;
    milp::shared_incumbent found_;
    double offered_ = milp::infinity;
    double taken_ = milp::infinity;
};

} // namespace detail

/// The problem as a mixed-integer linear model, solved by this library's solver. With offloading, a model without
/// overtaking finds schedules, and the model `pooled` raises the bound. If the best schedule doesn't reach the bound,
/// the much harder exact model is solved, too. With other storage options, only the exact model exists. Each model's
/// horizon is the incumbent's objective: only better schedules are feasible.
///
/// The effort is time: a million is about one second.
struct milp_strategy {
    static constexpr std::string_view name = "milp";
    /// The share is small: the strategy mainly contributes proofs. Not tuned.
    static constexpr double share = 0.5;
    milp_parameters parameters{};

    [[nodiscard]] strategy_traits traits(const problem& p) const {
        // Each cell has at least one row. Large problems are refused before their rows are counted: counting takes as
        // much memory as the model.
        const auto cells = p.graph.cells();
        if (cells > parameters.most_rows) return {.applicable = false};
        const formulation::operation_table operations{p};
        return {.applicable =
                    !formulation::detail::is_certainly_too_large(operations, options_for(parameters.most_rows)),
                .knows_storage_options = cells <= parameters.most_cells_with_options,
                .timed = true,
                .first_effort = effort_of(operations.any_may_offload() ? parameters.first_with_offloads
                                                                       : parameters.first_without_offloads),
                .share = share};
    }

    void operator()(search_state& state, const strategy_options& options) const {
        using formulation::overtaking;
        const auto begin = clock::now();
        const formulation::operation_table operations{state.problem()};
        for (const auto discipline : {overtaking::forbidden, overtaking::pooled, overtaking::allowed}) {
            if (!formulation::has_form(operations, discipline)) continue;
            const auto left = time_left(state, options, begin);
            if (state.done() || left.count() <= 0.0) return;
            // The horizon is half a tolerance below the objective, to allow for rounding errors.
            const auto horizon = state.objective() - 0.5 * state.slack();
            const auto f = model_of(state, discipline, horizon);
            if (!f) return;
            const auto result =
                detail::milp_run{state, name, *f, parameters}.run(options, (*f)->is_exact ? left : share_of(left));
            if ((*f)->is_exact || (*f)->is_pooled) conclude(state, result, horizon);
            if ((*f)->is_exact) return;
        }
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    static constexpr double effort_per_second = 1e6;
    static std::size_t effort_of(seconds time) { return static_cast<std::size_t>(effort_per_second * time.count()); }
    static seconds time_left(const search_state& state, const strategy_options& options, clock::time_point begin) {
        const seconds wanted{static_cast<double>(options.effort) / effort_per_second};
        return std::min<seconds>(wanted - (clock::now() - begin), state.limits().deadline - clock::now());
    }
    /// The time for an inexact model, if `left` is the remaining time.
    [[nodiscard]] seconds share_of(seconds left) const {
        return std::min(parameters.share_of_inexact * left, parameters.longest_inexact);
    }
    static formulation::options options_for(std::size_t most_rows) {
        formulation::options o;
        o.most_rows = most_rows;
        return o;
    }
    [[nodiscard]] outcome<std::shared_ptr<const formulation::formulated>>
    model_of(const search_state& state, formulation::overtaking discipline, duration horizon) const {
        auto o = options_for(parameters.most_rows);
        o.overtaking = discipline;
        o.horizon = horizon;
        o.bound = std::min(state.bound(), horizon);
        o.stop = [&state] { return state.done(); };
        return formulation::formulate(state.problem(), o);
    }
    /// Raises the bound to the optimum, or to the horizon if the model is infeasible.
    static void conclude(search_state& state, const milp::result& result, duration horizon) {
        if (std::holds_alternative<milp::infeasible>(result.why)) state.raise_bound(horizon, name);
        if (std::holds_alternative<milp::optimal>(result.why))
            state.raise_bound(std::min(duration{result.objective}, state.objective()), name);
    }
};
static_assert(check_search_strategy<milp_strategy>() && has_traits<milp_strategy>);

} // namespace optpipe
