#pragma once

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/search_hooks.hpp"
#include "optpipe/formulation/values_of.hpp"
#include "optpipe/milp/solve.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/linked_stop.hpp"
#include "optpipe/planner/part.hpp"

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

/// One model, solved for a board: what it finds is offered at once, what others find becomes its cutoff.
class milp_run {
public:
    milp_run(search_board& board, std::string_view name, std::shared_ptr<const formulation::formulated> f)
        : board_{board}, name_{name}, f_{std::move(f)}, stop_{board.limits().stop} {}

    /// First without relaxations, which are slow and say little where all is a matter of order.
    milp::result run(const part_options& o, std::chrono::duration<double> time) {
        const auto begin = std::chrono::steady_clock::now();
        constexpr double share_without = 0.75;
        auto result = run_once(o, share_without * time, false);
        if (!std::holds_alternative<milp::stopped>(result.why) || board_.done()) return result;
        return run_once(o, time - (std::chrono::steady_clock::now() - begin), true);
    }

private:
    milp::result run_once(const part_options& o, std::chrono::duration<double> time, bool with_relaxations) {
        constexpr std::chrono::duration<double> look_every{0.02};
        milp::solve_options options;
        options.threads = std::max<std::size_t>(1, o.threads);
        options.seed = o.seed;
        options.time_limit = time;
        options.tree_search = with_relaxations;
        options.stop = stop_.token();
        options.board = &found_;
        options.progress_interval = look_every;
        options.on_progress = [this](const milp::progress& at, milp::solution_sink& sink) { look(at, sink); };
        formulation::search_hooks hooks{f_, board_.bound(), [this](const schedule& s) { board_.offer(s, name_); }};
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
            board_.raise_bound(std::min(duration{at.bound}, board_.objective()), name_);
        if (board_.done()) stop_.request_stop();
        take_from_others(sink);
    }
    void offer(const std::vector<double>& values) {
        if (const auto timed = schedule_of(*f_, values)) board_.offer(*timed, name_);
    }
    void take_from_others(milp::solution_sink& sink) {
        const auto objective = board_.objective();
        if (!(objective.value() < offered_) || !(objective.value() < taken_)) return;
        taken_ = objective.value();
        const auto best = board_.incumbent();
        if (const auto values = values_of(*f_, *best)) sink.offer(*values);
    }

    search_board& board_;
    std::string_view name_;
    std::shared_ptr<const formulation::formulated> f_;
    linked_stop stop_;
    milp::incumbent_board found_;
    double offered_ = milp::infinity;
    double taken_ = milp::infinity;
};

} // namespace detail

/// The problem as a mixed-integer linear model, solved by this library's solver. Where stashes can travel there are
/// three: first the one in which microbatches keep their order, for schedules; then the pooled one, for the bound (both
/// are far easier than the exact one); and only if they don't meet the exact one, for both. The board's objective is
/// the horizon: what isn't better is not searched for.
///
/// An effort of a million is about a second of one thread.
struct milp_part {
    static constexpr std::string_view name = "milp";
    /// Larger models are left to others.
    std::size_t most_rows = 150'000;

    [[nodiscard]] bool suits(const problem& p) const {
        return !formulation::detail::is_hopeless(formulation::operation_table{p}, options_for(most_rows));
    }
    /// Where nothing can travel, the search without relaxations often needs half a second and is then through.
    [[nodiscard]] static std::size_t first_effort(const problem& p) {
        return formulation::operation_table{p}.any_may_travel() ? 100'000 : 600'000;
    }

    void operator()(search_board& board, const part_options& options) const {
        using formulation::overtaking;
        const auto begin = clock::now();
        for (const auto discipline : {overtaking::forbidden, overtaking::pooled, overtaking::as_needed}) {
            const auto left = time_left(board, options, begin);
            if (board.done() || left.count() <= 0.0) return;
            // Half of what counts as equal, so that rounding can't keep the proof from being one.
            const auto horizon = board.objective() - 0.5 * board.slack();
            const auto f = model_of(board, discipline, horizon);
            if (!f) return;
            const auto result = detail::milp_run{board, name, *f}.run(options, (*f)->is_exact ? left : share_of(left));
            if ((*f)->is_exact || (*f)->is_pooled) conclude(board, result, horizon);
            if ((*f)->is_exact) return;
        }
    }

private:
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;

    static seconds time_left(const search_board& board, const part_options& options, clock::time_point begin) {
        constexpr double effort_per_second = 1e6;
        const seconds wanted{static_cast<double>(options.effort) / effort_per_second};
        return std::min<seconds>(wanted - (clock::now() - begin), board.limits().deadline - clock::now());
    }
    /// What an inexact model may take of it.
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
    model_of(const search_board& board, formulation::overtaking discipline, duration horizon) const {
        auto o = options_for(most_rows);
        o.overtaking = discipline;
        o.horizon = horizon;
        o.bound = std::min(board.bound(), horizon);
        return formulation::formulate(board.to_solve(), o);
    }
    /// Nothing is better than the optimum, or than the horizon where there is no solution.
    static void conclude(search_board& board, const milp::result& result, duration horizon) {
        if (std::holds_alternative<milp::infeasible>(result.why)) board.raise_bound(horizon, name);
        if (std::holds_alternative<milp::optimal>(result.why))
            board.raise_bound(std::min(duration{result.objective}, board.objective()), name);
    }
};
static_assert(check_search_part<milp_part>());

} // namespace optpipe
