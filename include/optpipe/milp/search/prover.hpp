#pragma once

#include "optpipe/milp/search/conflict_search.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/finds.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/relaxation.hpp"

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

/// A problem with one column more, which is at least the objective in whole units: a lower bound on it says what the
/// objective can't be, an assumption on it is a literal.
struct measured_problem {
    problem task;
    std::size_t objective = 0;
    double unit = 0.0; ///< 0: the objective isn't bounded well enough to be measured

    measured_problem(const problem& p, double low, double high) : task{p}, objective{p.columns()} {
        constexpr double marks = 10000.0;
        constexpr double widest = 1e9;
        unit = p.objective_step > 0.0 ? p.objective_step : (high - low) / marks;
        const double span = std::max(std::abs(low), std::abs(high));
        if (!(unit > p.tolerances.slack(span)) || !(span < widest * unit)) {
            if (!(p.objective_step > 0.0 && span < widest * unit)) unit = 0.0;
        }
        const bool measured = unit > 0.0;
        task.lower.push_back(measured ? std::floor(low / unit) - 1.0 : 0.0);
        task.upper.push_back(measured ? std::ceil(high / unit) + 1.0 : 0.0);
        task.cost.push_back(0.0);
        task.kind.push_back(column_kind::implied);
        task.goes_up.push_back(0);
        task.unit.push_back(1.0);
        if (measured) add_row(p);
    }

private:
    void add_row(const problem& p) {
        std::vector<entry> terms;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.cost[j] != 0.0) terms.push_back({static_cast<std::uint32_t>(j), whole(p, p.cost[j] / unit)});
        terms.push_back({static_cast<std::uint32_t>(objective), -1.0});
        task.add_row(terms, -infinity, 0.0);
    }
    static double whole(const problem& p, double value) { return p.objective_step > 0.0 ? std::round(value) : value; }
};

/// Proves without relaxations: conflict search for better points, and in turn for a proof that none lies within a
/// stretch above the lower bound, which grows while that is easy (destructive bounds). Strong where rows with big
/// coefficients make relaxations weak.
class prover {
public:
    prover(const context& c, double low, double high, std::uint64_t seed)
        : context_{&c}, measured_{std::make_unique<measured_problem>(*c.task, low, high)},
          search_{measured_->task, seed}, bound_{low}, share_{*c.limits} {
        share_.set(bytes());
        for (std::size_t j = 0; j < c.task->columns(); ++j)
            has_continuous_ = has_continuous_ || c.task->kind[j] == column_kind::continuous;
    }

    [[nodiscard]] finds& found() { return finds_; }
    /// No point below the cutoff has a lower objective than this.
    [[nodiscard]] double bound() const { return bound_; }
    /// Nothing is left below the cutoff.
    [[nodiscard]] bool done() const { return done_; }
    /// Conflicts since something new came of them, or as many as would have been as dear.
    [[nodiscard]] std::size_t in_vain() const {
        constexpr std::size_t visits_per_conflict = 1000;
        return std::max(search_.conflicts() - last_success_, (effort() - effort_at_success_) / visits_per_conflict);
    }
    [[nodiscard]] std::size_t conflicts() const { return search_.conflicts(); }
    /// In visits of rows, or what takes as long.
    [[nodiscard]] std::size_t effort() const { return search_.row_visits() + relaxation_effort_; }
    [[nodiscard]] std::size_t bytes() const {
        return search_.bytes() + measured_->task.bytes() + (lp_ ? lp_->bytes() : 0);
    }

    void take_cutoff(double cutoff) {
        if (cutoff >= finds_.cutoff) return;
        finds_.cutoff = cutoff;
        search_.set_cutoff(cutoff);
    }
    void take_root_facts(std::span<const literal> facts) {
        search_.restart();
        for (const auto& f : facts)
            if (!search_.engine().imply_at_root(f)) return;
    }
    void take_bound(double bound) {
        if (measured_->unit <= 0.0 || bound <= bound_) return;
        bound_ = bound;
        search_.restart();
        const double whole = std::ceil(bound / measured_->unit - context_->task->tolerances.feasibility);
        static_cast<void>(search_.engine().imply_at_root(at_least(measured_->objective, whole)));
    }
    void take_point(std::span<const double> values) {
        for (std::size_t j = 0; j < values.size(); ++j)
            search_.set_phase(j, values[j]);
    }

    /// Works until about so many conflicts and row visits have passed, or it is done or stuck, or somebody raises
    /// `leave` to have the thread back.
    void work(std::size_t conflicts, std::size_t visits, const std::atomic<bool>* leave = nullptr) {
        leave_ = leave;
        if (has_risen_ || !search_.can_rise()) dispatch(visits);
        const auto last_conflict = search_.conflicts() + conflicts;
        const auto last_visit = effort() + visits;
        rise_once(visits / 2);
        while (!done_ && !stuck_ && !is_wanted() && search_.conflicts() < last_conflict && effort() < last_visit &&
               !context_->limits->over()) {
            const auto before = search_.conflicts();
            const auto outcome =
                run_once(std::min(slice, last_conflict - std::min(before, last_conflict)) + 1, last_visit);
            context_->limits->count_conflicts(search_.conflicts() - before);
            if (outcome != search_outcome::budget || !is_wanted()) digest(outcome);
            raise_bound();
            share_.set(bytes());
        }
    }
    [[nodiscard]] bool stuck() const { return stuck_; }

private:
    static constexpr std::size_t slice = 500;

    /// A first point, where there is none yet: binaries that order columns are decided by a few rules at first, by one
    /// more in each later turn. What that costs isn't held against the search. A rule sees every row several times: it
    /// may take longer than the turn, but not out of all proportion.
    void dispatch(std::size_t visits) {
        constexpr std::size_t first_rules = 2;
        constexpr std::size_t most_rules = 100;
        constexpr std::size_t visits_per_entry = 12;
        constexpr std::size_t most_turns = 16;
        if (!search_.can_dispatch()) return;
        const auto needed = visits_per_entry * measured_->task.entries.size();
        if (needed > most_turns * visits) return;
        const auto of_a_rule = std::max(visits / 2, needed);
        const auto conflicts_before = search_.conflicts();
        const auto effort_before = effort();
        const auto last = std::min(most_rules, std::max(first_rules, rules_tried_ + 1));
        for (; rules_tried_ < last && needs_point() && !is_over(effort() + 1); ++rules_tried_) {
            search_.begin_dispatching();
            run_for_point(of_a_rule);
            search_.end_dispatching();
        }
        if (!needs_point()) return;
        last_success_ += search_.conflicts() - conflicts_before;
        effort_at_success_ += effort() - effort_before;
    }
    /// The same by the columns of many values, where there are some; once.
    void rise_once(std::size_t visits) {
        if (has_risen_ || !search_.can_rise() || !needs_point()) return;
        has_risen_ = true;
        search_.begin_rising();
        run_for_point(visits);
        search_.end_rising();
    }
    [[nodiscard]] bool needs_point() const { return finds_.cutoff == infinity && !done_ && !stuck_; }
    void run_for_point(std::size_t visits) {
        constexpr std::size_t most_conflicts = 400;
        const auto before = search_.conflicts();
        const auto last_visit = effort() + visits;
        const auto outcome = search_.run(most_conflicts, {}, [&] { return is_over(last_visit); });
        context_->limits->count_conflicts(search_.conflicts() - before);
        if (outcome != search_outcome::budget) digest(outcome);
    }

    [[nodiscard]] bool is_wanted() const { return leave_ != nullptr && leave_->load(std::memory_order_relaxed); }
    [[nodiscard]] bool is_over(std::size_t last_visit) {
        if (context_->limits->limits_memory()) share_.set(bytes());
        return effort() >= last_visit || is_wanted() || context_->limits->over();
    }
    search_outcome run_once(std::size_t conflicts, std::size_t last_visit) {
        const auto stop = [&] { return is_over(last_visit); };
        if (!lifting_) return search_.run(conflicts, {}, stop);
        const auto& d = search_.engine().bounds();
        search_.restart();
        const double low = d.lower(measured_->objective);
        const double target = std::min(low + std::floor(stretch_) - 1.0, d.upper(measured_->objective) - 1.0);
        return search_.run(conflicts, at_most(measured_->objective, std::max(target, low)), stop);
    }
    void digest(search_outcome outcome) {
        switch (outcome) {
        case search_outcome::refuted: done_ = true; break;
        case search_outcome::assumed_false: stretch_ *= 2.0; break;
        case search_outcome::point: take_result(); break;
        case search_outcome::budget:
            if (lifting_) stretch_ = std::max(1.0, 0.5 * stretch_);
            lifting_ = !lifting_ && measured_->unit > 0.0;
            break;
        }
    }
    void raise_bound() {
        if (measured_->unit <= 0.0) return;
        const double whole = search_.engine().bounds().at_root(lower_of(measured_->objective));
        const double exact = context_->task->objective_step > 0.0 ? whole : whole - 1.0;
        const double reached = exact * measured_->unit;
        if (!(reached > bound_ + context_->task->tolerances.slack(bound_))) return;
        bound_ = reached;
        note_success();
    }

    void note_success() {
        last_success_ = search_.conflicts();
        effort_at_success_ = effort();
    }
    void take_result() {
        const auto& d = search_.engine().bounds();
        const auto n = context_->task->columns();
        std::vector<double> values(n);
        for (std::size_t j = 0; j < n; ++j)
            values[j] = d.lower(j);
        // Where rows are differences, the least of all values will do.
        if (finds_.offer(*context_, values) || (has_continuous_ && complete(values))) return take_solution(values);
        if (!has_continuous_) stuck_ = true;
    }
    void take_solution(std::span<const double> values) {
        note_success();
        take_point(values);
        search_.set_cutoff(finds_.cutoff);
    }
    /// The integers being fixed, solves for the rest, or learns why that can't be.
    bool complete(std::vector<double>& values) {
        if (!lp_) lp_ = std::make_unique<relaxation>(*context_->task, 0);
        const auto& d = search_.engine().bounds();
        for (std::size_t j = 0; j < values.size(); ++j)
            lp_->set_bounds(j, d.lower(j), d.upper(j));
        const auto before = lp_->effort();
        const auto status = lp_->solve(*context_->limits, infinity);
        relaxation_effort_ += lp_->effort() - before;
        if (status == lp_status::optimal) {
            values.assign(lp_->point().begin(), lp_->point().end());
            if (finds_.offer(*context_, values)) return true;
        }
        const bool infeasible = status == lp_status::infeasible;
        if (status != lp_status::stopped)
            exclude(infeasible ? lp_->solver().infeasibility_ray() : lp_->solver().duals(), infeasible ? 0.0 : 1.0);
        return false;
    }
    void exclude(std::span<const double> multipliers, double share) {
        proof_row proof{*context_->task, lp_->cuts()};
        proof.build(multipliers, share, finds_.cutoff);
        auto& engine = search_.engine();
        proof.tidy(engine.bounds());
        if (!proof.contradicts(engine.bounds())) {
            stuck_ = true; // neither a point nor a reason why not
            return;
        }
        engine.contradict(proof.terms(), proof.limit(), proof.noise());
        done_ = !search_.learn_from_conflict();
    }

    const context* context_;
    std::unique_ptr<measured_problem> measured_;
    conflict_search search_;
    std::unique_ptr<relaxation> lp_;
    const std::atomic<bool>* leave_ = nullptr;
    finds finds_;
    double bound_;
    memory_share share_;
    double stretch_ = 1.0;
    std::size_t last_success_ = 0;
    std::size_t effort_at_success_ = 0;
    std::size_t relaxation_effort_ = 0;
    bool has_continuous_ = false;
    std::size_t rules_tried_ = 0;
    bool has_risen_ = false;
    bool lifting_ = false;
    bool done_ = false;
    bool stuck_ = false;
};

} // namespace optpipe::milp::search
