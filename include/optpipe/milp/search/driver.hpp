#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/presolve.hpp"
#include "optpipe/milp/result.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/given_hooks.hpp"
#include "optpipe/milp/search/implied_integers.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/parallel/tree_search.hpp"
#include "optpipe/milp/search/reduction.hpp"
#include "optpipe/milp/search/reporter.hpp"
#include "optpipe/milp/search/root.hpp"

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
        if (m.is_integer(x)) ++integers;
    return {m.variables(), integers, m.rows(), m.nonzeros()};
}

/// One search from start to end.
class driver {
public:
    /// `above` is the control of the outer search, or null.
    driver(const model& given, const solve_options& options, given_hooks hooks, control* above = nullptr)
        : given_{&given}, options_{&options}, is_part_{above != nullptr}, hooks_{std::move(hooks)},
          limits_{options, above}, best_{given, options.tolerance, options.shared}, reporter_{given, options, limits_,
                                                                                              best_} {
        result_.stats.given = result_.stats.presolved = size_of(given);
    }

    result solve() {
        if (hooks_.first_solution && best_.offer(*hooks_.first_solution)) reporter_.tell(true);
        search();
        const bool denied = limits_.finished() && !unbounded_ && !best_.exists();
        if (denied && !is_part_ && !crossed_bounds())
            if (auto found = search_relaxed()) return std::move(*found);
        if (!is_part_ && !limits_.finished() && limits_.reason() == limit::numerics)
            if (auto found = search_plain()) return std::move(*found);
        return conclude();
    }

private:
    /// Searches again after a search that found no point. The second search moves sides of rows and bounds of columns
    /// outwards by a part of their tolerance. The model is infeasible only if the second search finds no point, either.
    /// Points may violate the moved sides and bounds by the rest of the tolerance. The second search may use one node
    /// more than the first. The second search runs no conflict search, because conflict search has no node limit.
    std::optional<result> search_relaxed() {
        constexpr double part = 0.5; // a share of the tolerance
        constexpr double rest = 0.499;
        const auto m = relaxed_model(*given_, {{part * options_->tolerance.relative}});
        if (!m) return std::nullopt;
        auto options = remaining_options();
        options.node_limit = limits_.nodes() + 1;
        options.conflict_search = false;
        options.tolerance = {rest * options_->tolerance.relative};
        driver second{*m, options, {}};
        second.is_part_ = true;
        auto found = second.solve();
        if (!found.incumbent || !best_.offer(*found.incumbent)) return std::nullopt;
        found.stats.given = result_.stats.given;
        if (const auto* early = std::get_if<stopped>(&found.why); early && early->why == limit::nodes)
            found.why = stopped{limit::numerics};
        return found;
    }
    /// Searches the given model without presolve, if the first search couldn't settle the presolved model. The second
    /// search has at most `least_nodes` more nodes than the first. The second search runs no conflict search, because
    /// conflict search has no node limit. The result is empty if the second search doesn't settle the model. The second
    /// search's point is kept if it is better than the incumbent.
    std::optional<result> search_plain() {
        constexpr std::size_t least_nodes = 1000;
        if (!options_->presolve || hooks_.cuts_at) return std::nullopt;
        auto options = remaining_options();
        options.node_limit = std::min(options.node_limit, least_nodes + limits_.nodes());
        options.presolve = options.conflict_search = false;
        options.on_progress = {};
        driver second{*given_, options, {}, &limits_};
        second.is_part_ = false;
        if (best_.exists()) second.hooks_.first_solution = best_.values();
        auto found = second.solve();
        count(found.stats);
        if (found.incumbent) best_.offer(*found.incumbent);
        if (std::holds_alternative<stopped>(found.why)) return std::nullopt;
        found.stats = std::move(conclude().stats);
        return found;
    }
    void count(const statistics& stats) {
        limits_.count_nodes(stats.nodes);
        limits_.count_iterations(stats.lp_iterations);
        limits_.count_conflicts(stats.conflicts);
    }
    /// The model with wider sides and bounds. Each row side moves by its slack (`feasibility`). Each column bound moves
    /// by slack / max(1, the column's largest coefficient), so activities change by at most the slack. Bounds of
    /// integer variables and sides of integral rows don't move. Empty if no side and no bound moves.
    [[nodiscard]] static std::optional<model> relaxed_model(model m, const feasibility& by) {
        bool is_wider = false;
        const auto widen = [&](auto at, double lower, double upper, double coefficient) {
            is_wider = is_wider || std::isfinite(lower) || std::isfinite(upper);
            m.set_bounds(at, lower - by.slack(lower) / coefficient, upper + by.slack(upper) / coefficient);
        };
        std::vector<double> largest(m.variables(), 1.0);
        for (const row r : m.all_rows())
            for (const auto& t : m.terms(r))
                largest[t.column.position()] = std::max(largest[t.column.position()], std::abs(t.coefficient));
        for (const variable x : m.all_variables())
            if (!m.is_integer(x)) widen(x, m.lower(x), m.upper(x), largest[x.position()]);
        for (const row r : m.all_rows())
            if (!is_integral(m, r)) widen(r, m.row_lower(r), m.row_upper(r), 1.0);
        return is_wider ? std::optional{std::move(m)} : std::nullopt;
    }
    [[nodiscard]] solve_options remaining_options() const {
        auto options = *options_;
        options.time_limit =
            std::chrono::duration<double>{std::max(0.0, options_->time_limit.count() - limits_.seconds())};
        if (options.node_limit < std::numeric_limits<std::size_t>::max())
            options.node_limit -= std::min(options.node_limit, limits_.nodes());
        return options;
    }

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
            root.report = [this](double bound) { update_bound(bound); };
            const auto outcome = root.process();
            result_.stats.cuts += root.cuts();
            update_bound(root.bound());
            if (outcome == root_outcome::closed) return limits_.finish();
            if (outcome == root_outcome::unbounded) return settle_unbounded();
            if (outcome == root_outcome::stopped) return;
            if (restart >= options_->restarts || !root.is_reduced_enough()) return run_tree_search(root);
            ++result_.stats.restarts;
            reduction_.tighten(root.engine().bounds(), problem_);
        }
    }
    /// Memory of the models that presolve makes from the given model.
    [[nodiscard]] std::size_t least_memory() const {
        constexpr std::size_t per_term = 72;
        constexpr std::size_t per_line = 250;
        return per_term * given_->nonzeros() + per_line * (given_->rows() + given_->variables());
    }
    /// With user cuts, presolve must keep rows, because cuts are rows of the given model. A user's cut may exclude the
    /// points that presolve's dual reductions keep.
    presolve_status reduce() {
        const bool keeps_rows = static_cast<bool>(hooks_.cuts_at);
        return options_->presolve ? reduction_.reduce(keeps_rows, feasible(), limits_) : presolve_status::reduced;
    }

    [[nodiscard]] feasibility feasible() const { return {options_->tolerance}; }
    [[nodiscard]] numbers tolerances() const { return {options_->tolerance.relative, options_->tolerance.relative}; }
    void prepare() {
        problem_ = problem_of(reduction_.model(), tolerances(), reduction_.noise());
        set_witness();
        if (!hooks_.cuts_at && problem_.has_integers()) take_implied_integers();
        make_rows_integral(problem_);
        problem_.objective_step = find_objective_step(problem_);
        auto& c = context_;
        c.instance = &problem_;
        c.options = options_;
        c.limits = &limits_;
        c.best = &best_;
        c.ceiling = ceiling_;
        c.shift = problem_.direction * (reduction_.model().offset() - given_->offset());
        c.offset = problem_.direction * given_->offset();
        c.to_given = [this](std::span<const double> values) { return reduction_.restore(problem_.to_model(values)); };
        c.on_incumbent = [this] { reporter_.tell(true); };
        c.solve_sub = [this](const model& m, sub_effort most, double cutoff) { return solve_sub(m, most, cutoff); };
        c.help = help();
        memory_.set(reduction_.bytes() + problem_.bytes());
        if (!c.witness_point.empty()) c.witness_objective = problem_.objective_of(c.witness_point);
        c.witness_lost = hooks_.witness_lost;
    }
    [[nodiscard]] guidance help() {
        guidance h;
        if (!hooks_.priorities.empty()) h.priorities = reduction_.pick(hooks_.priorities);
        if (hooks_.bound) h.bound = problem_.direction * (*hooks_.bound - given_->offset()) - context_.shift;
        if (hooks_.solution_near)
            h.solution_near = [this](std::span<const double> point) {
                return hooks_.solution_near(relaxed_point(point));
            };
        if (hooks_.cuts_at) h.cuts_at = [this](std::span<const double> point) { return user_cuts(point); };
        return h;
    }
    /// Converts a point of a relaxation to a point of the given model. Integer variables aren't rounded.
    [[nodiscard]] std::vector<double> relaxed_point(std::span<const double> point) const {
        std::vector<double> values(point.begin(), point.end());
        for (std::size_t j = 0; j < values.size(); ++j)
            values[j] *= problem_.unit[j];
        return reduction_.restore(std::move(values));
    }
    /// Columns have the model's units here, because implied integers aren't sought with user cuts.
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
    /// Sets the witness, unless presolve excludes it.
    void set_witness() {
        context_.witness_point.clear();
        if (hooks_.witness.empty()) return;
        auto point = reduction_.project(hooks_.witness);
        if (check(reduction_.model(), point, options_->tolerance).empty()) context_.witness_point = std::move(point);
    }
    /// Uses implied integers, unless the witness has fractional values in the implied columns.
    void take_implied_integers() {
        auto with_implied = problem_;
        if (implied_integers{with_implied}.apply() == 0) return;
        auto point = context_.witness_point;
        if (!point.empty()) point = with_implied.from_model(point);
        for (std::size_t j = 0; j < point.size(); ++j)
            if (with_implied.is_integral(j) && std::abs(point[j] - std::round(point[j])) > options_->tolerance.at(1.0))
                return;
        context_.witness_point = std::move(point);
        problem_ = std::move(with_implied);
    }
    /// Searches a neighbourhood for points within the cutoff. The model `m` and the points have the columns of the
    /// current problem.
    std::optional<std::vector<double>> solve_sub(const model& m, sub_effort most, double cutoff) {
        solve_options options;
        options.node_limit = most.nodes;
        options.time_limit =
            std::chrono::duration<double>{std::max(0.0, options_->time_limit.count() - limits_.seconds())};
        options.stop = limits_.token();
        memory_share share{limits_};
        share.set(m.bytes());
        // The limit is half of this thread's share of the rest, because other threads also take memory.
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
    void run_tree_search(root_node& root) {
        parallel_tree_search t{context_, root.take_prover()};
        t.report = [this](double bound) {
            update_bound(bound);
            reporter_.tell(false);
        };
        if (root.has_lp()) {
            t.start_tree(root.engine(), root.lp(), root.first_node());
            root.forget_relaxation();
        }
        t.run();
        if (t.is_unbounded()) return settle_unbounded();
        update_bound(t.bound());
    }
    /// Raises the bound, at most to the cutoff.
    void update_bound(double bound) {
        const double cutoff = context_.cutoff_below(context_.incumbent_objective());
        reporter_.raise_bound(std::min(bound, cutoff) + context_.shift);
    }

    /// Whether a column's bounds or a row's sides cross by more than the tolerance.
    [[nodiscard]] bool crossed_bounds() const {
        const auto cross = [this](double lower, double upper) { return feasible().cross(lower, upper); };
        for (const variable x : given_->all_variables())
            if (cross(given_->lower(x), given_->upper(x))) return true;
        for (const row r : given_->all_rows())
            if (cross(given_->row_lower(r), given_->row_upper(r))) return true;
        return false;
    }
    /// Decides the status of a model with an unbounded relaxation. With an unbounded relaxation and any solution, the
    /// model is unbounded, because its numbers are rational. The search for a solution starts with the presolved model.
    /// The presolved model may lack solutions, because some reductions assume that an optimum exists.
    void settle_unbounded() {
        if (!best_.exists())
            if (auto found = any_solution(reduction_.model()).incumbent)
                best_.offer(reduction_.restore(std::move(*found)));
        if (!best_.exists()) {
            auto found = any_solution(*given_);
            if (std::holds_alternative<infeasible>(found.why)) return limits_.finish();
            if (!found.incumbent) {
                const auto* early = std::get_if<stopped>(&found.why);
                limits_.end(early != nullptr ? early->why : limit::numerics);
                return;
            }
            best_.offer(std::move(*found.incumbent));
        }
        unbounded_ = true;
        limits_.finish();
    }
    [[nodiscard]] result any_solution(model m) {
        m.set_objective({});
        auto options = remaining_options();
        options.on_progress = {};
        options.log = {};
        options.shared = nullptr;
        driver search{m, options, {}, &limits_};
        search.is_part_ = false;
        auto found = search.solve();
        count(found.stats);
        return found;
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
    /// Records that no point is left below the cutoff.
    void conclude_finished() {
        const double objective = best_.objective();
        const double exact = std::min(
            objective, std::max(reporter_.bound(), context_.cutoff_below(objective - context_.shift) + context_.shift));
        const bool gap_wanted = options_->absolute_gap > 0.0 || options_->relative_gap > 0.0;
        const bool is_gap = gap_wanted && context_.gap_decides(objective - context_.shift) && exact < objective;
        result_.why = optimal{};
        result_.bound = reporter_.in_model(is_gap ? exact : objective);
    }

    const model* given_;
    const solve_options* options_;
    bool is_part_;
    given_hooks hooks_;
    control limits_;
    memory_share memory_{limits_};
    incumbents best_;
    reporter reporter_;
    reduction reduction_;
    problem problem_;
    context context_;
    result result_;
    double ceiling_ = infinity;
    bool unbounded_ = false;
};

} // namespace optpipe::milp::search
