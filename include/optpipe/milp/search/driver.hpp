#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/presolve.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/given_hooks.hpp"
#include "optpipe/milp/search/integral.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/reduction.hpp"
#include "optpipe/milp/search/reporter.hpp"
#include "optpipe/milp/search/root.hpp"
#include "optpipe/milp/search/team.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

[[nodiscard]] inline model_size size_of(const model& m) {
    const auto all = m.all_variables();
    std::size_t integers = 0;
    for (const variable x : all)
        integers += m.is_integer(x) ? 1 : 0;
    return {m.variables(), integers, m.rows(), m.nonzeros()};
}

/// One search from beginning to end.
class driver {
public:
    /// `above`: of the search that this one is a part of.
    driver(const model& given, const solve_options& options, given_hooks hooks, control* above = nullptr)
        : given_{&given}, options_{&options}, hooks_{std::move(hooks)}, limits_{options, above},
          best_{given, options.tolerance, options.board}, reporter_{given, options, limits_, best_} {
        result_.stats.given = result_.stats.presolved = size_of(given);
    }

    result solve() {
        if (hooks_.first_solution && best_.offer(*hooks_.first_solution)) reporter_.tell(true);
        search();
        return conclude();
    }

private:
    void search() {
        if (crossed_bounds()) return limits_.finish();
        if (limits_.memory_left() < least_memory()) {
            limits_.end(limit::memory);
            return;
        }
        memory_.set(least_memory());
        reduction_.start(*given_);
        if (!hooks_.cuts_at) reduction_.settle_on_grid(tolerances());
        for (std::size_t restart = 0;; ++restart) {
            switch (reduce()) {
            case presolve_status::infeasible: return limits_.finish();
            case presolve_status::unbounded: return settle_unbounded();
            case presolve_status::reduced: break;
            }
            prepare();
            if (restart == 0) result_.stats.presolved = size_of(reduction_.model());
            root_node root{context_};
            root.report = [this](double bound) { know(bound); };
            const auto outcome = root.process();
            result_.stats.cuts += root.cuts();
            know(root.bound());
            if (outcome == root_outcome::closed) return limits_.finish();
            if (outcome == root_outcome::unbounded) return settle_unbounded();
            if (outcome == root_outcome::stopped) return;
            if (restart >= options_->restarts || !root.has_shrunk()) return run_team(root);
            ++result_.stats.restarts;
            reduction_.tighten(root.engine().bounds(), task_);
        }
    }
    /// For the models that presolve makes of the given one; they are there for a while even if little is left of them.
    [[nodiscard]] std::size_t least_memory() const {
        constexpr std::size_t per_term = 72;
        constexpr std::size_t per_line = 250;
        return per_term * given_->nonzeros() + per_line * (given_->rows() + given_->variables());
    }
    /// Cuts of the user are rows in terms of the given model, and may cut off what dual reductions keep.
    presolve_status reduce() {
        const bool keeps_rows = static_cast<bool>(hooks_.cuts_at);
        return options_->presolve ? reduction_.reduce(keeps_rows, limits_) : presolve_status::reduced;
    }

    [[nodiscard]] numbers tolerances() const { return {options_->tolerance.relative, options_->tolerance.relative}; }
    void prepare() {
        task_ = problem_of(reduction_.model(), tolerances());
        set_witness();
        if (!hooks_.cuts_at && task_.has_integers()) take_implied_integers();
        make_rows_whole(task_);
        task_.objective_step = find_objective_step(task_);
        auto& c = context_;
        c.task = &task_;
        c.options = options_;
        c.limits = &limits_;
        c.best = &best_;
        c.ceiling = ceiling_;
        c.shift = task_.direction * (reduction_.model().offset() - given_->offset());
        c.to_given = [this](std::span<const double> values) { return reduction_.restore(task_.to_model(values)); };
        c.on_incumbent = [this] { reporter_.tell(true); };
        c.solve_sub = [this](const model& m, sub_effort most, double cutoff) { return solve_sub(m, most, cutoff); };
        c.help = help();
        memory_.set(reduction_.bytes() + task_.bytes());
        if (!c.witness_point.empty()) c.witness_objective = task_.objective_of(c.witness_point);
        c.witness_lost = hooks_.witness_lost;
    }
    [[nodiscard]] guidance help() {
        guidance h;
        if (!hooks_.priorities.empty()) h.priorities = reduction_.pick(hooks_.priorities);
        if (hooks_.bound) h.bound = task_.direction * (*hooks_.bound - given_->offset()) - context_.shift;
        if (hooks_.solution_near)
            h.solution_near = [this](std::span<const double> point) {
                return hooks_.solution_near(relaxed_point(point));
            };
        if (hooks_.cuts_at) h.cuts_at = [this](std::span<const double> point) { return user_cuts(point); };
        return h;
    }
    /// Of a relaxation, in terms of the given model; whole values aren't rounded.
    [[nodiscard]] std::vector<double> relaxed_point(std::span<const double> point) const {
        std::vector<double> values(point.begin(), point.end());
        for (std::size_t j = 0; j < values.size(); ++j)
            values[j] *= task_.unit[j];
        return reduction_.restore(std::move(values));
    }
    /// Columns have the unit of the model here: no integers are implied where cuts are the user's.
    [[nodiscard]] std::vector<sparse_row> user_cuts(std::span<const double> point) const {
        std::vector<sparse_row> rows;
        for (auto& given : hooks_.cuts_at(relaxed_point(point))) {
            for (const auto& t : given.body.terms())
                OPTPIPE_EXPECT(t.column.position() < given_->variables(), "cuts_at: there is no such variable");
            const auto cut = reduction_.translate(std::move(given));
            sparse_row r{{}, cut.lower - cut.body.constant(), cut.upper - cut.body.constant()};
            for (const auto& t : cut.body.terms())
                r.entries.push_back({t.column.value(), t.coefficient});
            rows.push_back(std::move(r));
        }
        return rows;
    }
    /// Where presolve keeps the witness.
    void set_witness() {
        context_.witness_point.clear();
        if (hooks_.witness.empty()) return;
        auto point = reduction_.project(hooks_.witness);
        if (check(reduction_.model(), point, options_->tolerance).empty()) context_.witness_point = std::move(point);
    }
    /// Unless the witness is none of the points with whole columns.
    void take_implied_integers() {
        auto whole = task_;
        if (implied_integers{whole}.apply() == 0) return;
        auto point = context_.witness_point;
        if (!point.empty()) point = whole.from_model(point);
        for (std::size_t j = 0; j < point.size(); ++j)
            if (whole.is_whole(j) && std::abs(point[j] - std::round(point[j])) > options_->tolerance.at(1.0)) return;
        context_.witness_point = std::move(point);
        task_ = std::move(whole);
    }
    /// A neighbourhood, in terms of the problem at hand, where only points within the cutoff count.
    std::optional<std::vector<double>> solve_sub(const model& m, sub_effort most, double cutoff) {
        solve_options options;
        options.node_limit = most.nodes;
        options.time_limit =
            std::chrono::duration<double>{std::max(0.0, options_->time_limit.count() - limits_.seconds())};
        options.stop = limits_.token();
        memory_share share{limits_};
        share.set(m.bytes());
        // the others may grow meanwhile
        options.memory_limit = limits_.memory_left() / (2 * std::max<std::size_t>(1, options_->threads));
        options.seed = options_->seed;
        options.heuristics = false;
        options.conflict_search = false;
        options.cuts = options_->cuts;
        options.restarts = 0;
        options.tolerance = options_->tolerance;
        driver sub{m, options, {}, &limits_};
        sub.ceiling_ = cutoff;
        sub.limits_.limit_iterations(most.iterations);
        auto found = sub.solve();
        limits_.count_iterations(found.stats.lp_iterations);
        return std::move(found.incumbent);
    }
    void run_team(root_node& root) {
        team t{context_, root.take_prover()};
        t.report = [this](double bound) {
            know(bound);
            reporter_.tell(false);
        };
        if (root.has_lp()) {
            t.plant(root.engine(), root.lp(), root.first_node());
            root.forget_relaxation();
        }
        t.run();
        know(t.bound());
    }
    void know(double bound) { reporter_.raise_bound(bound + context_.shift); }

    /// By more than the tolerance.
    [[nodiscard]] bool crossed_bounds() const {
        const auto cross = [this](double lower, double upper) {
            return lower > upper + options_->tolerance.at(std::max(1.0, std::abs(lower)));
        };
        for (const variable x : given_->all_variables())
            if (cross(given_->lower(x), given_->upper(x))) return true;
        for (const row r : given_->all_rows())
            if (cross(given_->row_lower(r), given_->row_upper(r))) return true;
        return false;
    }
    /// The relaxation is unbounded: so is the model, if it has any solution at all (its numbers being rational). What
    /// presolve left is searched first; it may have none, as some of the reductions take an optimum for granted.
    void settle_unbounded() {
        if (!best_.exists())
            if (auto found = any_solution(reduction_.model()).incumbent)
                best_.offer(reduction_.restore(std::move(*found)));
        if (!best_.exists()) {
            auto found = any_solution(*given_);
            if (std::holds_alternative<infeasible>(found.why)) return limits_.finish();
            if (!found.incumbent) {
                limits_.end(limit::numerics);
                return;
            }
            best_.offer(std::move(*found.incumbent));
        }
        unbounded_ = true;
        limits_.finish();
    }
    [[nodiscard]] result any_solution(model m) const {
        m.set_objective({});
        auto options = *options_;
        options.time_limit =
            std::chrono::duration<double>{std::max(0.0, options_->time_limit.count() - limits_.seconds())};
        options.on_progress = {};
        options.board = nullptr;
        return driver{m, options, {}}.solve();
    }

    result conclude() {
        auto& r = result_;
        r.incumbent = best_.values();
        r.objective = reporter_.in_model(best_.objective());
        const double known = std::min(reporter_.bound(), best_.objective());
        if (unbounded_) {
            r.why = unbounded{};
            r.bound = reporter_.in_model(-infinity);
        } else if (limits_.finished() && !r.incumbent) {
            r.why = infeasible{};
            r.bound = reporter_.in_model(infinity);
        } else if (limits_.finished()) {
            conclude_finished();
        } else {
            r.why = stopped{limits_.reason().value_or(limit::time)};
            r.bound = reporter_.in_model(known);
        }
        r.stats.nodes = limits_.nodes();
        r.stats.lp_iterations = limits_.iterations();
        r.stats.conflicts = limits_.conflicts();
        r.stats.solutions = best_.found();
        r.stats.memory = limits_.peak_memory();
        r.stats.seconds = limits_.seconds();
        r.stats.history = reporter_.history();
        r.stats.history.push_back({r.stats.seconds, r.objective, r.bound});
        return std::move(result_);
    }
    /// Nothing is left below the cutoff: that is an optimum, unless the user wanted less.
    void conclude_finished() {
        const double objective = best_.objective();
        const double exact = std::min(
            objective, std::max(reporter_.bound(), context_.cutoff_below(objective - context_.shift) + context_.shift));
        const bool gap_wanted = options_->absolute_gap > 0.0 || options_->relative_gap > 0.0;
        const bool is_gap = gap_wanted && context_.gap_decides(objective - context_.shift) && exact < objective;
        if (is_gap)
            result_.why = stopped{limit::gap};
        else
            result_.why = optimal{};
        result_.bound = reporter_.in_model(is_gap ? exact : objective);
    }

    const model* given_;
    const solve_options* options_;
    given_hooks hooks_;
    control limits_;
    memory_share memory_{limits_};
    incumbents best_;
    reporter reporter_;
    reduction reduction_;
    problem task_;
    context context_;
    result result_;
    double ceiling_ = infinity;
    bool unbounded_ = false;
};

} // namespace optpipe::milp::search
