#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/conflict/analysis.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/cuts/user.hpp"
#include "optpipe/milp/search/heuristics/rounding.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/parallel/worker_results.hpp"
#include "optpipe/milp/search/propagation/propagator.hpp"
#include "optpipe/milp/search/tree/branching.hpp"
#include "optpipe/milp/search/tree/node.hpp"
#include "optpipe/milp/search/tree/proof_row.hpp"
#include "optpipe/milp/search/tree/pseudocosts.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Limits of `tree_worker` at a node. Not tuned.
struct tree_worker_parameters {
    /// Effort of a dive in row visits. Solving a relaxation counts as row visits of the same duration. After a dive,
    /// other workers can take over nodes.
    std::size_t effort_per_dive = 10'000'000;
    /// Largest number of rounds of propagation and relaxation at a node. A round that fixes nothing is the last round.
    std::size_t most_rounds = 4;
    /// Number of learned clauses at which half of them are deleted.
    std::size_t most_learned = 5000;
    /// Largest number of literals in a clause that is learned from an infeasible relaxation. Longer clauses prune less
    /// and cost more.
    std::size_t longest_clause = 200;
    /// Limits of user cuts: rounds per node, cuts per round, and cuts kept before loose cuts are removed.
    std::size_t most_separations = 3;
    std::size_t most_cuts_per_round = 10;
    std::size_t most_cuts = 50;
    /// Longest pause between two requests for user cuts, in nodes. A worker pauses its requests if the last request
    /// gave no cuts. Each pause is about twice as long as the previous pause.
    std::size_t longest_pause = 31;
};

/// One worker of branch and bound on relaxations. A worker dives from a node, and returns the open nodes on its way.
/// Results for other workers wait until they are collected.
class tree_worker {
public:
    tree_worker(const context& c, const propagator& engine, const relaxation& lp)
        : context_{&c}, engine_{engine}, lp_{lp}, analysis_{*c.instance}, proof_{*c.instance, lp_.cuts()},
          history_{c.instance->columns()}, locks_{*c.instance}, cuts_of_root_{lp_.cuts().size()}, share_{*c.limits} {
        account();
    }
    tree_worker(const tree_worker&) = delete;
    tree_worker& operator=(const tree_worker&) = delete;

    /// Processes at most `budget` nodes depth first, beginning with `n`. Processes fewer nodes if they are expensive.
    /// The remaining nodes are in `open`, the shallowest first. After each node, `share` is called with `open`, and may
    /// remove nodes.
    template <class Share> void dive(node n, std::size_t budget, std::vector<node>& open, Share share) {
        const auto last = effort() + with_.effort_per_dive;
        open.clear();
        open.push_back(std::move(n));
        while (!open.empty() && budget-- > 0 && effort() < last && !results_.is_unbounded &&
               !context_->limits->over()) {
            if (!context_->options->deterministic) take_cutoff(context_->cutoff_below(context_->incumbent_objective()));
            node next = std::move(open.back());
            open.pop_back();
            if (next.bound > results_.cutoff) continue;
            context_->limits->count_node();
            ++nodes_;
            process(std::move(next), open);
            if (context_->limits->limits_memory() && !context_->options->deterministic) account(open);
            share(open);
        }
    }

    [[nodiscard]] std::size_t bytes() const {
        return engine_.bytes() + lp_.bytes() + analysis_.bytes() + proof_.bytes() + history_.bytes() +
               bytes_of(locks_.up, locks_.down, path_, observations_);
    }
    /// Updates the memory that the control counts. In deterministic mode, may only be called between rounds.
    void account() { share_.set(bytes()); }
    /// Number of processed nodes.
    [[nodiscard]] std::size_t nodes() const { return nodes_; }
    /// Total effort in row visits. Solving a relaxation counts as row visits of the same duration.
    [[nodiscard]] std::size_t effort() const { return engine_.row_visits() + lp_.effort(); }
    [[nodiscard]] worker_results& found() { return results_; }
    [[nodiscard]] pseudocosts& history() { return history_; }
    [[nodiscard]] std::vector<pseudocosts::observation>& observations() { return observations_; }
    [[nodiscard]] propagator& engine() { return engine_; }
    [[nodiscard]] relaxation& lp() { return lp_; }
    /// Least bound of nodes neither searched nor excluded; infinite without such nodes.
    [[nodiscard]] double unresolved() const { return unresolved_; }

    void take_cutoff(double cutoff) {
        if (cutoff >= results_.cutoff) return;
        results_.cutoff = cutoff;
        engine_.set_cutoff(cutoff);
    }
    /// Goes to the root, and applies the bounds proven by other workers.
    void apply_global_bounds(std::span<const literal> global_bounds) {
        retreat(0);
        for (const auto& f : global_bounds)
            if (!engine_.imply_at_root(f)) return;
        static_cast<void>(engine_.propagate());
        if (engine_.learned().learned() > with_.most_learned) engine_.learned().forget_half();
    }

    /// Sets the bounds of a node. If the node has no points, learns the reason and returns false.
    bool enter(const node& n) {
        std::size_t common = 0;
        while (common < path_.size() && common < n.decisions.size() && path_[common].decision == n.decisions[common])
            ++common;
        retreat(common < path_.size() ? path_[common].before : engine_.level());
        path_.resize(std::min(path_.size(), common));
        if (!engine_.propagate()) return learn_and_fail();
        for (auto k = path_.size(); k < n.decisions.size(); ++k) {
            const auto l = n.decisions[k];
            path_.push_back({l, engine_.level()});
            if (engine_.bounds().is_true(l)) continue;
            if (engine_.bounds().is_false(l)) return false;
            engine_.decide(l);
            if (!engine_.propagate()) return learn_and_fail();
        }
        return true;
    }

    enum class verdict : unsigned char { closed, open, interrupted };

    /// Solves the relaxation and tightens bounds by reduced costs, until nothing changes. Raises `bound`. After `open`,
    /// `lp().point()` is valid if `has_point`.
    verdict relax(double& bound, bool& has_point) {
        for (std::size_t round = 0; round < with_.most_rounds; ++round) {
            const auto status = solve_once(bound, has_point);
            if (status != verdict::open || !has_point || results_.cutoff == infinity) return status;
            const auto changes = engine_.bounds().changes();
            proof_.build(lp_.solver().duals(), 1.0, results_.cutoff);
            proof_.normalize(engine_.bounds());
            if (!engine_.apply(proof_.terms(), proof_.safe_limit()) || !engine_.propagate()) {
                learn();
                return verdict::closed;
            }
            if (engine_.bounds().changes() == changes || !cuts_off_point(changes)) return verdict::open;
        }
        return verdict::open;
    }

    /// Checks a point, which may become the incumbent. Returns whether the point is a solution within the cutoff.
    bool offer(std::span<const double> values) {
        if (!results_.offer(*context_, values)) return false;
        engine_.set_cutoff(results_.cutoff);
        return true;
    }

    bool offer_given(std::vector<double> values) {
        if (!results_.offer_given(*context_, std::move(values))) return false;
        engine_.set_cutoff(results_.cutoff);
        return true;
    }
    /// Offers the relaxation's point with rounded integer variables. If the rounded point isn't a solution, solves for
    /// the continuous columns again. Returns false if there is no solution. Contract: in the relaxation's point,
    /// integer variables are integral within the tolerance.
    bool offer_rounded() {
        std::vector<double> values(lp_.point().begin(), lp_.point().end());
        for (std::size_t j = 0; j < values.size(); ++j)
            if (context_->instance->is_integer(j)) values[j] = std::round(values[j]);
        if (!results_.is_solution(*context_, values)) return complete(values);
        static_cast<void>(offer(values));
        return true;
    }
    /// Solves for the continuous columns with the integer variables fixed at `values`. Returns false if there is no
    /// solution. The call changes the relaxation's point.
    bool complete(std::span<const double> values) {
        for (std::size_t j = 0; j < values.size(); ++j)
            if (context_->instance->is_integer(j)) lp_.set_bounds(j, values[j], values[j]);
        std::vector<double> completed;
        if (lp_.solve(*context_->limits, infinity) == lp_status::optimal)
            completed.assign(lp_.point().begin(), lp_.point().end());
        lp_.follow(engine_.bounds());
        if (completed.empty() || !results_.is_solution(*context_, completed)) return false;
        static_cast<void>(offer(completed));
        return true;
    }

    /// Learns from the current conflict, and backtracks to the clause's level.
    void learn() {
        context_->limits->count_conflicts(1);
        if (engine_.refuted()) return;
        const std::vector<literal> conflict = engine_.conflict();
        auto learned = analysis_.analyze(engine_, conflict);
        retreat(learned.back_to);
        if (learned.literals.size() > with_.longest_clause) return;
        static_cast<void>(engine_.learn(learned.literals, true, learned.levels));
        if (learned.literals.size() == 1) results_.global_bounds.push_back(learned.literals.front());
    }

private:
    static constexpr tree_worker_parameters with_{};

    void account(std::span<const node> open) {
        std::size_t sum = bytes();
        for (const auto& n : open)
            sum += n.bytes();
        share_.set(sum);
    }

    struct step {
        literal decision;
        std::uint32_t before; ///< level at which the decision was made
    };

    void retreat(std::uint32_t level) {
        engine_.back_to(level);
        while (!path_.empty() && path_.back().before >= level)
            path_.pop_back();
    }
    bool learn_and_fail() {
        learn();
        return false;
    }

    void process(node n, std::vector<node>& open) {
        if (!enter(n)) return;
        context_->watch(engine_.bounds(), n.decisions, results_.cutoff, "propagation at a node");
        lp_.follow(engine_.bounds());
        if (n.start && n.start != start_) lp_.set_basis(*n.start);
        const double parent = n.bound;
        bool has_point = false;
        auto what = relax(n.bound, has_point);
        start_.reset();
        if (what == verdict::interrupted) return open.push_back(std::move(n));
        if (!n.decisions.empty() && n.rounded > 0.0 && has_point)
            note({column_of(n.decisions.back().bound), !is_upper(n.decisions.back().bound), n.rounded,
                  n.bound - parent});
        if (what == verdict::open && has_point && n.bound <= results_.cutoff) what = take_user_cuts(n.bound, has_point);
        if (what == verdict::interrupted) return open.push_back(std::move(n));
        if (what == verdict::closed || n.bound > results_.cutoff) return;
        if (!has_point) return branch_without_point(n, open);
        auto candidates = fractional_columns(*context_, lp_.point());
        if (candidates.empty()) return settle(n, open);
        if (const auto rounded = round_by_locks(*context_->instance, locks_, lp_.point())) offer(*rounded);
        const auto choice = reliability_branching{*context_, lp_, history_}.choose(std::move(candidates), n.bound,
                                                                                   results_.cutoff, observations_);
        start_ = std::make_shared<const basis>(lp_.solver().current_basis());
        n.start = start_;
        split(n, choice, open);
    }
    /// Adds violated user cuts in a few rounds. The cuts hold everywhere, but only this worker keeps them.
    verdict take_user_cuts(double& bound, bool& has_point) {
        auto what = verdict::open;
        if (!context_->help.cuts_at || !context_->options->cuts) return what;
        if (nodes_ < next_separation_) return what;
        bool found = false;
        for (std::size_t round = 0; round < with_.most_separations && what == verdict::open && has_point; ++round) {
            if (fractional_columns(*context_, lp_.point()).empty() || !add_user_cuts()) break;
            found = true;
            what = relax(bound, has_point);
        }
        separation_pause_ = found ? 0 : std::min(with_.longest_pause, 2 * separation_pause_ + 1);
        next_separation_ = nodes_ + 1 + separation_pause_;
        return what;
    }
    /// Returns false if the relaxation's point violates no user cut.
    bool add_user_cuts() {
        const std::vector<double> point(lp_.point().begin(), lp_.point().end());
        cut_pool pool;
        user_separation{*context_}.separate(point, pool);
        std::vector<sparse_row> rows;
        for (const auto& c : pool.take(point, with_.most_cuts_per_round)) {
            context_->watch(c.entries, c.limit);
            rows.push_back(c.row());
        }
        if (rows.empty()) return false;
        if (lp_.cuts().size() > cuts_of_root_ + with_.most_cuts) lp_.remove_cuts(lp_.loose_cuts(cuts_of_root_));
        lp_.add_cuts(rows);
        return true;
    }

    void note(const pseudocosts::observation& seen) {
        history_.add(seen);
        observations_.push_back(seen);
    }

    verdict solve_once(double& bound, bool& has_point) {
        has_point = false;
        lp_.follow(engine_.bounds());
        auto status = lp_.solve(*context_->limits, results_.cutoff);
        if (status == lp_status::numerical_trouble || status == lp_status::iteration_limit) {
            lp_.forget_basis();
            status = lp_.solve(*context_->limits, infinity);
        }
        results_.is_unbounded = results_.is_unbounded || status == lp_status::unbounded;
        if (status == lp_status::stopped || status == lp_status::unbounded) return verdict::interrupted;
        if (status == lp_status::infeasible)
            return closes(lp_.solver().infeasibility_ray(), 0.0) ? verdict::closed : verdict::open;
        bound = std::max(bound, lp_.bound());
        if (bound > results_.cutoff && closes(lp_.solver().duals(), 1.0)) return verdict::closed;
        has_point = status == lp_status::optimal;
        return verdict::open;
    }
    /// Whether the multipliers prove that the node has no points left. The proof is computed independently of the
    /// linear solver. If the proof succeeds, a clause is learned.
    bool closes(std::span<const double> multipliers, double share) {
        proof_.build(multipliers, share, results_.cutoff);
        proof_.normalize(engine_.bounds());
        if (!proof_.contradicts(engine_.bounds())) return false;
        watch_closing();
        engine_.contradict(proof_.terms(), proof_.limit(), proof_.noise());
        learn();
        return true;
    }
    /// Checks that the witness isn't in the node about to be pruned as infeasible.
    void watch_closing() const {
        if (context_->witness_point.empty() || results_.cutoff < context_->witness_objective) return;
        const auto& d = engine_.bounds();
        for (std::size_t j = 0; j < d.columns(); ++j) {
            const double value = context_->witness_point[j];
            const double slack = context_->instance->tolerances.slack(value);
            if (value < d.lower(j) - slack || value > d.upper(j) + slack) return;
        }
        context_->witness_lost("a relaxation that seems to have no points");
    }
    [[nodiscard]] bool cuts_off_point(trail_position from) const {
        const auto& d = engine_.bounds();
        const auto point = lp_.point();
        for (auto i = from; i < d.changes(); ++i)
            if (!holds_at({d.at(i).bound, d[d.at(i).bound]}, point[column_of(d.at(i).bound)],
                          context_->instance->tolerances.integrality))
                return true;
        return false;
    }

    /// Handles an integral point of the relaxation. The point is a solution unless rounding it violates a row. The node
    /// is closed if the bound of the relaxation reaches the cutoff within rounding errors. An open node branches on the
    /// integer variable farthest from its rounded value.
    void settle(node& n, std::vector<node>& open) {
        const auto farthest = farthest_from_integral();
        const double bound = std::max(n.bound, lp_.nearly_bound());
        static_cast<void>(offer_rounded());
        if (reaches_cutoff(bound)) return;
        if (!farthest) return branch_without_point(n, open);
        n.start.reset();
        split(n, *farthest, open);
    }
    /// Whether a bound reaches the cutoff within rounding errors.
    [[nodiscard]] bool reaches_cutoff(double bound) const {
        if (!std::isfinite(bound)) return false;
        const double slack = context_->objective_slack(bound);
        // If objectives are multiples of a step, the cutoff is only half of the slack above the best objective left.
        return bound + (context_->instance->objective_step > slack ? 0.0 : slack) > results_.cutoff;
    }
    [[nodiscard]] std::optional<branching_choice> farthest_from_integral() const {
        std::optional<branching_choice> farthest;
        double most = 0.0;
        const auto point = lp_.point();
        for (std::size_t j = 0; j < point.size(); ++j) {
            if (!context_->instance->is_integer(j) || engine_.bounds().is_fixed(j)) continue;
            const double distance = std::abs(point[j] - std::round(point[j]));
            if (!(distance > most) || !(point[j] > engine_.bounds().lower(j)) ||
                !(point[j] < engine_.bounds().upper(j)))
                continue;
            most = distance;
            farthest = {j, point[j], point[j] > std::round(point[j])};
        }
        return farthest;
    }

    /// Branches when the relaxation has given no point that passes its check. First it halves a domain, then it
    /// branches where the rejected point is fractional. If neither is possible and `settle_leaf` fails, the node stays
    /// unresolved. The search's bound stays at or below an unresolved node's bound.
    void branch_without_point(node& n, std::vector<node>& open) {
        auto choice = halved_domain();
        if (!choice && unresolved_ > -infinity) choice = fractional_in_rejected_point();
        if (choice) {
            n.start.reset();
            return split(n, *choice, open);
        }
        if (!settle_leaf(n)) unresolved_ = std::min(unresolved_, n.bound);
    }
    /// Halves the domain of the first unfixed integer variable. Empty if this domain is infinite and would be divided
    /// at a huge value.
    [[nodiscard]] std::optional<branching_choice> halved_domain() const {
        const auto& d = engine_.bounds();
        for (std::size_t j = 0; j < d.columns(); ++j) {
            if (!context_->instance->is_integer(j) || d.is_fixed(j)) continue;
            const double middle = std::isfinite(d.width(j))   ? 0.5 * (d.lower(j) + d.upper(j))
                                  : std::isfinite(d.lower(j)) ? 2.0 * std::max(d.lower(j), 1.0)
                                  : std::isfinite(d.upper(j)) ? 2.0 * std::min(d.upper(j), -1.0)
                                                              : 0.0;
            const bool is_given_up = unresolved_ == -infinity || std::abs(middle) > context_->instance->tolerances.huge;
            if (!std::isfinite(d.width(j)) && is_given_up) break;
            return branching_choice{j, std::floor(middle) + 0.5, false};
        }
        return std::nullopt;
    }
    [[nodiscard]] std::optional<branching_choice> fractional_in_rejected_point() const {
        const auto choice = farthest_from_integral();
        const bool is_fractional =
            choice && std::abs(choice->value - std::round(choice->value)) > context_->instance->tolerances.integrality;
        return is_fractional ? choice : std::nullopt;
    }
    /// Decides a node without free integer variables by a relaxation within the problem's own bounds. Bounds that
    /// follow from the cutoff may leave a domain that is narrower than rounding errors.
    bool settle_leaf(const node& n) {
        const auto& p = *context_->instance;
        const auto& d = engine_.bounds();
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.is_integer(j) && !d.is_fixed(j)) return false;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (!p.is_integer(j)) lp_.set_bounds(j, p.lower[j], p.upper[j]);
        const auto status = lp_.solve(*context_->limits, infinity);
        const double bound = std::max(n.bound, lp_.nearly_bound());
        if (status == lp_status::optimal) static_cast<void>(offer(lp_.point()));
        lp_.follow(d);
        if (status == lp_status::infeasible) {
            proof_.build(lp_.solver().infeasibility_ray(), 0.0, results_.cutoff);
            proof_.normalize(d);
            return proof_.contradicts(d);
        }
        return reaches_cutoff(bound);
    }
    void split(const node& n, const branching_choice& choice, std::vector<node>& open) {
        for (const bool up : {!choice.up_first, choice.up_first}) {
            node child = n;
            child.decisions.push_back(up ? at_least(choice.column, std::ceil(choice.value))
                                         : at_most(choice.column, std::floor(choice.value)));
            child.rounded = up ? std::ceil(choice.value) - choice.value : choice.value - std::floor(choice.value);
            child.estimate = n.bound + child.rounded * history_.unit(choice.column, up);
            open.push_back(std::move(child));
        }
    }

    const context* context_;
    propagator engine_;
    relaxation lp_;
    conflict_analysis analysis_;
    proof_row proof_;
    pseudocosts history_;
    std::vector<pseudocosts::observation> observations_;
    locks locks_;
    worker_results results_;
    std::vector<step> path_;
    std::shared_ptr<const basis> start_;
    double unresolved_ = infinity;
    std::size_t nodes_ = 0;
    std::size_t cuts_of_root_;
    std::size_t next_separation_ = 0;
    std::size_t separation_pause_ = 0;
    memory_share share_;
};

} // namespace optpipe::milp::search
