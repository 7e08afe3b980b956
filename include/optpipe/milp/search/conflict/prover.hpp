#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/milp/search/conflict/conflict_search.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/parallel/worker_results.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// A problem with an additional integer column whose value times `unit` is at least the objective. A lower bound of the
/// additional column is a bound on the objective.
struct problem_with_objective {
    problem instance;
    std::size_t objective = 0;
    double unit = 0.0; ///< 0 if the objective isn't bounded well enough to choose a unit

    problem_with_objective(const problem& p, double low, double high) : instance{p}, objective{p.columns()} {
        constexpr double marks = 10000.0;
        constexpr double widest = 1e9;
        unit = p.objective_step > 0.0 ? p.objective_step : (high - low) / marks;
        const double span = std::max(std::abs(low), std::abs(high));
        if (!(unit > p.tolerances.objective_slack(span)) || !(span < widest * unit)) {
            if (!(p.objective_step > 0.0 && span < widest * unit)) unit = 0.0;
        }
        const bool measured = unit > 0.0;
        instance.lower.push_back(measured ? std::floor(low / unit) - 1.0 : 0.0);
        instance.upper.push_back(measured ? std::ceil(high / unit) + 1.0 : 0.0);
        instance.cost.push_back(0.0);
        instance.kind.push_back(column_kind::implied);
        instance.prefers_upper.push_back(0);
        instance.unit.push_back(1.0);
        if (measured) add_row(p);
    }

private:
    void add_row(const problem& p) {
        std::vector<entry> terms;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.cost[j] != 0.0) terms.push_back({static_cast<std::uint32_t>(j), rounded(p, p.cost[j] / unit)});
        terms.push_back({static_cast<std::uint32_t>(objective), -1.0});
        instance.add_row(terms, -infinity, 0.0);
    }
    static double rounded(const problem& p, double value) { return p.objective_step > 0.0 ? std::round(value) : value; }
};

/// How `prover` divides its effort, which is measured in row visits. Not tuned.
struct prover_parameters {
    /// Number of row visits that count as one conflict.
    std::size_t visits_per_conflict = 1000;
    /// Number of conflicts between two checks of the proven bound.
    std::size_t conflicts_per_run = 500;
    /// Number of dispatching rules that may look for a first point. `first_rules` is the limit in the first call, and
    /// `most_rules` is the limit in total.
    std::size_t first_rules = 2;
    std::size_t most_rules = 100;
    /// Expected number of row visits of a rule per coefficient. Rules that take more than `most_slices` slices aren't
    /// tried.
    std::size_t visits_per_entry = 12;
    std::size_t most_slices = 16;
    /// A new point is progress only if it closes at least this share (0 to 1) of the gap. A share of 0.001 makes the
    /// search 13 times faster on random models of 3 to 8 columns with large domains. A share of 0.01 makes the search 7
    /// times slower on one pipeline model, but 0.001 doesn't.
    double least_progress = 0.001;
    /// Conflict limit of a run that looks for a first point.
    std::size_t conflicts_for_point = 400;
};

/// Proves bounds without relaxations. Conflict search alternates between better points and higher lower bounds
/// (destructive lower bounds). The step grows while proofs are easy. The prover is strong on problems with big-M rows,
/// whose relaxations are weak.
class prover {
public:
    prover(const context& c, double low, double high, std::uint64_t seed)
        : context_{&c}, scaled_{std::make_unique<problem_with_objective>(*c.instance, low, high)},
          search_{scaled_->instance, seed}, bound_{low}, share_{*c.limits} {
        share_.set(bytes());
        for (std::size_t j = 0; j < c.instance->columns(); ++j)
            has_continuous_ = has_continuous_ || c.instance->kind[j] == column_kind::continuous;
    }

    [[nodiscard]] worker_results& found() { return results_; }
    /// The proven bound: no point below the cutoff has a lower objective.
    [[nodiscard]] double bound() const { return bound_; }
    /// Whether no point is left below the cutoff.
    [[nodiscard]] bool done() const { return done_; }
    /// Conflicts and points since the last progress, or the effort in conflicts if that is more.
    [[nodiscard]] std::size_t stalled_conflicts() const {
        return std::max(search_.conflicts() - last_success_ + points_since_success_,
                        (effort() - effort_at_success_) / with_.visits_per_conflict);
    }
    [[nodiscard]] std::size_t conflicts() const { return search_.conflicts(); }
    /// Total effort in row visits. Solving a relaxation counts as row visits of the same duration.
    [[nodiscard]] std::size_t effort() const { return search_.row_visits() + relaxation_effort_; }
    [[nodiscard]] std::size_t bytes() const {
        return search_.bytes() + scaled_->instance.bytes() + (lp_ ? lp_->bytes() : 0);
    }

    void take_cutoff(double cutoff) {
        if (cutoff >= results_.cutoff) return;
        results_.cutoff = cutoff;
        search_.set_cutoff(cutoff);
    }
    void apply_global_bounds(std::span<const literal> global_bounds) {
        search_.restart();
        for (const auto& f : global_bounds)
            if (!search_.engine().imply_at_root(f)) return;
    }
    void take_bound(double bound) {
        if (scaled_->unit <= 0.0 || bound <= bound_) return;
        bound_ = bound;
        search_.restart();
        const double least = std::ceil(bound / scaled_->unit - context_->instance->tolerances.feasibility);
        static_cast<void>(search_.engine().imply_at_root(at_least(scaled_->objective, least)));
    }
    void take_point(std::span<const double> values) {
        for (std::size_t j = 0; j < values.size(); ++j)
            search_.set_phase(j, values[j]);
    }

    /// Works for about `conflicts` conflicts or `visits` row visits. Ends early if the prover is done or stuck, or if
    /// `leave` is set.
    void work(std::size_t conflicts, std::size_t visits, const std::atomic<bool>* leave = nullptr) {
        leave_ = leave;
        if (tried_least_bound_first_ || !search_.has_general_integers()) dispatch(visits);
        const auto last_conflict = search_.conflicts() + conflicts;
        const auto last_visit = effort() + visits;
        try_least_bound_first(visits / 2);
        while (!done_ && !stuck_ && !is_wanted() && search_.conflicts() < last_conflict && effort() < last_visit &&
               !context_->limits->over()) {
            const auto before = search_.conflicts();
            const auto left = last_conflict - std::min(before, last_conflict);
            const auto outcome = run_once(std::min(with_.conflicts_per_run, left) + 1, last_visit);
            context_->limits->count_conflicts(search_.conflicts() - before);
            if (outcome != search_outcome::budget || !is_wanted()) digest(outcome);
            raise_bound();
            share_.set(bytes());
        }
    }
    [[nodiscard]] bool stuck() const { return stuck_; }

private:
    static constexpr prover_parameters with_{};

    /// Looks for a first point if there is none yet. Dispatching rules decide the binaries that order columns. The
    /// first slice tries a few rules, and each later slice one more rule. The effort of dispatching rules doesn't count
    /// in `stalled_conflicts`.
    void dispatch(std::size_t visits) {
        if (!search_.can_dispatch()) return;
        const auto needed = with_.visits_per_entry * scaled_->instance.entries.size();
        if (needed > with_.most_slices * visits) return;
        const auto of_a_rule = std::max(visits / 2, needed);
        const auto conflicts_before = search_.conflicts();
        const auto effort_before = effort();
        const auto last = std::min(with_.most_rules, std::max(with_.first_rules, rules_tried_ + 1));
        for (; rules_tried_ < last && needs_point() && !is_over(effort() + 1); ++rules_tried_) {
            search_.begin_dispatching();
            run_for_point(of_a_rule);
            search_.end_dispatching();
        }
        if (!needs_point()) return;
        last_success_ += search_.conflicts() - conflicts_before;
        effort_at_success_ += effort() - effort_before;
    }
    /// Looks for a first point by deciding general integer variables first. Later calls do nothing.
    void try_least_bound_first(std::size_t visits) {
        if (tried_least_bound_first_ || !search_.has_general_integers() || !needs_point()) return;
        tried_least_bound_first_ = true;
        search_.begin_least_bound_first();
        run_for_point(visits);
        search_.end_least_bound_first();
    }
    [[nodiscard]] bool needs_point() const { return results_.cutoff == infinity && !done_ && !stuck_; }
    void run_for_point(std::size_t visits) {
        const auto before = search_.conflicts();
        const auto last_visit = effort() + visits;
        const stop_when over{[&] { return is_over(last_visit); }};
        const auto outcome = search_.run(with_.conflicts_for_point, {}, over);
        context_->limits->count_conflicts(search_.conflicts() - before);
        if (outcome != search_outcome::budget) digest(outcome);
    }

    [[nodiscard]] bool is_wanted() const { return leave_ != nullptr && leave_->load(std::memory_order_relaxed); }
    [[nodiscard]] bool is_over(std::size_t last_visit) {
        if (context_->limits->limits_memory()) share_.set(bytes());
        return effort() >= last_visit || is_wanted() || context_->limits->over();
    }
    search_outcome run_once(std::size_t conflicts, std::size_t last_visit) {
        const stop_when over{[&] { return is_over(last_visit); }};
        if (!lifting_) return search_.run(conflicts, {}, over);
        const auto& d = search_.engine().bounds();
        search_.restart();
        const double low = d.lower(scaled_->objective);
        const double target = std::min(low + std::floor(stretch_) - 1.0, d.upper(scaled_->objective) - 1.0);
        return search_.run(conflicts, at_most(scaled_->objective, std::max(target, low)), over);
    }
    void digest(search_outcome outcome) {
        switch (outcome) {
        case search_outcome::refuted: done_ = true; break;
        case search_outcome::assumed_false: stretch_ *= 2.0; break;
        case search_outcome::point: take_result(); break;
        case search_outcome::budget:
            if (lifting_) stretch_ = std::max(1.0, 0.5 * stretch_);
            lifting_ = !lifting_ && scaled_->unit > 0.0;
            break;
        }
    }
    void raise_bound() {
        if (scaled_->unit <= 0.0) return;
        const double least = search_.engine().bounds().at_root(lower_of(scaled_->objective));
        const double exact = context_->instance->objective_step > 0.0 ? least : least - 1.0;
        const double reached = exact * scaled_->unit;
        if (!(reached > bound_ + context_->instance->tolerances.objective_slack(bound_))) return;
        bound_ = reached;
        note_success();
    }

    void note_success() {
        last_success_ = search_.conflicts();
        points_since_success_ = 0;
        cutoff_at_success_ = results_.cutoff;
        effort_at_success_ = effort();
    }
    void take_result() {
        const auto& d = search_.engine().bounds();
        const auto n = context_->instance->columns();
        std::vector<double> values(n);
        for (std::size_t j = 0; j < n; ++j)
            values[j] = d.lower(j);
        // If every row is a difference of columns, the least values of all columns form a solution.
        if (results_.offer(*context_, values) || (has_continuous_ && complete(values))) return take_solution(values);
        if (!has_continuous_) stuck_ = true;
    }
    /// Small gains don't count as progress, because a relaxation may find the optimum at once.
    void take_solution(std::span<const double> values) {
        ++points_since_success_;
        const double gap = cutoff_at_success_ - bound_;
        if (!(cutoff_at_success_ - results_.cutoff < with_.least_progress * gap)) note_success();
        take_point(values);
        search_.set_cutoff(results_.cutoff);
    }
    /// Solves for the remaining columns with the integer variables fixed. If there is no solution, learns the reason.
    bool complete(std::vector<double>& values) {
        if (!lp_) lp_ = std::make_unique<relaxation>(*context_->instance, 0);
        const auto& d = search_.engine().bounds();
        for (std::size_t j = 0; j < values.size(); ++j)
            lp_->set_bounds(j, d.lower(j), d.upper(j));
        const auto before = lp_->effort();
        const auto status = lp_->solve(*context_->limits, infinity);
        relaxation_effort_ += lp_->effort() - before;
        if (status == lp_status::optimal) {
            values.assign(lp_->point().begin(), lp_->point().end());
            if (results_.offer(*context_, values)) return true;
        }
        const bool infeasible = status == lp_status::infeasible;
        if (status != lp_status::stopped)
            exclude(infeasible ? lp_->solver().infeasibility_ray() : lp_->solver().duals(), infeasible ? 0.0 : 1.0);
        return false;
    }
    void exclude(std::span<const double> multipliers, double share) {
        proof_row proof{*context_->instance, lp_->cuts()};
        proof.build(multipliers, share, results_.cutoff);
        auto& engine = search_.engine();
        proof.normalize(engine.bounds());
        if (!proof.contradicts(engine.bounds())) {
            stuck_ = true; // neither a point nor a reason that excludes a point has been found
            return;
        }
        engine.contradict(proof.terms(), proof.limit(), proof.noise());
        done_ = !search_.learn_from_conflict();
    }

    const context* context_;
    std::unique_ptr<problem_with_objective> scaled_;
    conflict_search search_;
    std::unique_ptr<relaxation> lp_;
    const std::atomic<bool>* leave_ = nullptr;
    worker_results results_;
    double bound_;
    memory_share share_;
    double stretch_ = 1.0;
    std::size_t last_success_ = 0;
    std::size_t points_since_success_ = 0;
    double cutoff_at_success_ = infinity;
    std::size_t effort_at_success_ = 0;
    std::size_t relaxation_effort_ = 0;
    bool has_continuous_ = false;
    std::size_t rules_tried_ = 0;
    bool tried_least_bound_first_ = false;
    bool lifting_ = false;
    bool done_ = false;
    bool stuck_ = false;
};

} // namespace optpipe::milp::search
