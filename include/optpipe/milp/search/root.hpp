#pragma once

#include "optpipe/milp/search/conflict/prover.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/cuts/implied_bounds.hpp"
#include "optpipe/milp/search/cuts/separation.hpp"
#include "optpipe/milp/search/heuristics/controller.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/propagation/propagator.hpp"
#include "optpipe/milp/search/tree/node.hpp"
#include "optpipe/milp/search/tree/proof_row.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"
#include "optpipe/milp/search/tree/tree_worker.hpp"
#include "optpipe/parallel/workers.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

enum class root_outcome : unsigned char {
    closed,    ///< no point is left below the cutoff
    unbounded, ///< the relaxation is unbounded
    open,
    stopped,
};

/// Parameters for the division of work at the root. Efforts are numbers of conflicts and of row visits. Not tuned.
struct root_parameters {
    /// Limits of the prover's first run, before the relaxation.
    std::size_t first_conflicts = 10'000;
    std::size_t first_visits = 20'000'000;
    /// Limits the first run to this multiple of the relaxation's expected effort (1 with continuous columns). The run
    /// is limited because the relaxation alone may solve the problem. The limit is at least `least_first_visits`, which
    /// takes a few hundredths of a second.
    std::size_t first_share = 10;
    std::size_t least_first_visits = 1'000'000;
    /// Row visits of the prover's first run if there is a second thread. A second thread continues the prover's work
    /// during the relaxation.
    std::size_t first_visits_in_parallel = 200'000;
    std::size_t first_conflicts_if_short = 500;
    /// Number of conflicts without progress until the relaxation starts. Small problems have a lower number, because
    /// their relaxation is faster.
    std::size_t first_stall_limit = 1'500;
    /// Limits of the prover's work between two checks.
    std::size_t conflicts_per_slice = 500;
    std::size_t visits_per_slice = 2'000'000;
    /// Number of row visits for probing all binaries.
    std::size_t probing_effort = 5'000'000;
    /// Percentage of open integer variables that must be fixed for another presolve.
    std::size_t least_fixed_percent = 20;
};

/// The work before the tree search: propagation, prover, relaxation with cuts, and heuristics.
class root_node {
public:
    explicit root_node(const context& c) : context_{&c}, engine_{*c.instance}, tree_share_{*c.limits} {
        tree_share_.set(engine_.bytes());
    }

    [[nodiscard]] propagator& engine() { return engine_; }
    [[nodiscard]] relaxation& lp() { return *lp_; }
    /// Frees the relaxation, which can't be copied after this call.
    void forget_relaxation() {
        lp_.reset();
        tree_share_.set(engine_.bytes());
    }
    [[nodiscard]] std::unique_ptr<prover> take_prover() { return std::move(prover_); }
    [[nodiscard]] bool has_lp() const { return lp_ != nullptr; }
    [[nodiscard]] double bound() const { return bound_; }
    [[nodiscard]] std::size_t cuts() const { return lp_ ? lp_->cuts().size() : 0; }
    /// Whether enough integer variables have been fixed to make another presolve worthwhile.
    [[nodiscard]] bool is_reduced_enough() const {
        const auto& p = *context_->instance;
        std::size_t open = 0, fixed = 0;
        for (std::size_t j = 0; j < p.columns(); ++j) {
            if (!p.is_integer(j) || p.lower[j] >= p.upper[j]) continue;
            ++open;
            if (engine_.bounds().is_fixed(j)) ++fixed;
        }
        return fixed * 100 > open * with_.least_fixed_percent;
    }
    std::function<void(double)> report;

    /// Call this only inside an arena, because it starts TBB tasks.
    root_outcome process() {
        if (!context_->instance->has_integers())
            if (const auto outcome = solve_alone(); outcome != root_outcome::open) return outcome;
        engine_.set_cutoff(cutoff());
        if (!engine_.propagate()) return root_outcome::closed;
        context_->watch(engine_.bounds(), {}, cutoff(), "propagation at the root");
        raise(engine_.least_objective());
        if (run_prover()) return root_outcome::closed;
        if (context_->limits->over()) return root_outcome::stopped;
        if (!context_->options->tree_search && context_->instance->has_integers()) return root_outcome::open;
        const auto outcome = proves_in_parallel() ? process_in_parallel() : process_relaxation();
        return outcome == root_outcome::open ? run_heuristics() : outcome;
    }

    [[nodiscard]] node first_node() const {
        node n;
        n.bound = bound_;
        n.start = std::make_shared<const basis>(lp_->solver().current_basis());
        return n;
    }

private:
    static constexpr root_parameters with_{};

    using tree_workers = std::span<const std::unique_ptr<tree_worker>>;

    [[nodiscard]] double cutoff() const { return context_->cutoff_below(context_->incumbent_objective()); }
    void raise(double bound) {
        if (!(bound > bound_)) return;
        bound_ = bound;
        if (report) report(bound_);
    }

    /// Returns true if the prover has finished the search.
    bool run_prover() {
        const double low = engine_.least_objective();
        if (!context_->options->conflict_search || low == -infinity || !context_->instance->has_integers())
            return false;
        if (context_->limits->memory_left() < engine_.bytes() + context_->instance->bytes()) return false;
        prover_ = std::make_unique<prover>(*context_, low, greatest_objective(), context_->options->seed);
        prover_->take_cutoff(cutoff());
        prover_->take_bound(std::max(bound_, context_->help.bound));
        const bool reals = context_->instance->has(column_kind::continuous);
        const bool in_parallel = proves_in_parallel();
        const auto conflicts = reals || in_parallel ? with_.first_conflicts_if_short : with_.first_conflicts;
        const auto most = in_parallel ? with_.first_visits_in_parallel : with_.first_visits;
        // On one thread, the prover gets at least the relaxation's expected time.
        const auto fair = in_parallel ? 0 : std::min(most, expected_effort());
        const auto share = reals ? 1 : with_.first_share;
        const auto visits = std::min(most, std::max(with_.least_first_visits, share * expected_effort()));
        const auto stall_limit = std::min(with_.first_stall_limit, expected_effort());
        const auto slice =
            std::min({visits, with_.visits_per_slice, stall_limit * prover_parameters{}.visits_per_conflict});
        const auto goes_on = [&] {
            if (prover_->done() || prover_->stuck() || context_->limits->over()) return false;
            if (prover_->effort() < fair) return true;
            return prover_->conflicts() < conflicts && prover_->effort() < visits &&
                   prover_->stalled_conflicts() < stall_limit;
        };
        do
            prover_->work(with_.conflicts_per_slice, slice);
        while (goes_on());
        prover_->found().publish(*context_);
        merge_prover_results();
        engine_.set_cutoff(cutoff());
        return prover_->done();
    }
    void merge_prover_results() {
        if (!prover_) return;
        take_point(prover_->found().point);
        raise(prover_->bound());
    }
    [[nodiscard]] double greatest_objective() const {
        double sum = 0.0;
        const auto& d = engine_.bounds();
        for (std::size_t j = 0; j < d.columns(); ++j)
            if (const double cost = context_->instance->cost[j]; cost != 0.0)
                sum += cost * (cost > 0.0 ? d.upper(j) : d.lower(j));
        return std::min(sum, context_->incumbent_objective());
    }

    /// Solves a problem without integer variables by the relaxation alone. The outcome is `open` only if the
    /// relaxation's answer fails the check.
    root_outcome solve_alone() { return load_relaxation() ? solve_relaxation() : root_outcome::stopped; }
    root_outcome process_relaxation() {
        const bool probes = context_->options->cuts && context_->instance->has_integers();
        if (probes && !implied_.probe(engine_, with_.probing_effort)) return root_outcome::closed;
        return load_relaxation() ? solve_relaxation() : root_outcome::stopped;
    }
    /// Returns false if there isn't enough memory.
    bool load_relaxation() {
        if (context_->limits->memory_left() < expected_bytes()) return !context_->limits->end(limit::memory);
        lp_ = std::make_unique<relaxation>(*context_->instance, context_->options->seed);
        account();
        return true;
    }
    /// Expected memory of the relaxation, if its factors have little fill-in.
    [[nodiscard]] std::size_t expected_bytes() const {
        constexpr std::size_t per_term = 84;
        constexpr std::size_t per_line = 300;
        const auto& p = *context_->instance;
        return per_term * p.entries.size() + per_line * (p.rows() + p.columns());
    }
    /// Expected effort of solving the relaxation from scratch: about one iteration per row and column.
    [[nodiscard]] std::size_t expected_effort() const {
        const auto lines = context_->instance->rows() + context_->instance->columns();
        return relaxation::effort_of(lines, lines);
    }
    void account() { tree_share_.set(engine_.bytes() + lp_->bytes() + implied_.bytes()); }
    [[nodiscard]] bool works_in_parallel() const {
        return context_->options->threads > 1 && !context_->options->deterministic;
    }
    [[nodiscard]] bool proves_in_parallel() const { return works_in_parallel() && prover_ && !prover_->stuck(); }
    /// Runs the prover while the relaxation is solved.
    root_outcome process_in_parallel() {
        auto outcome = root_outcome::stopped;
        std::atomic<bool> is_finished{false};
        const auto job = [&](std::size_t k) {
            together([&] {
                if (k == 1) return prove_until(is_finished);
                outcome = process_relaxation();
                is_finished.store(true);
            });
        };
        context_->limits->expect_relaxations(2);
        parallel::workers{2, job}.run(2);
        merge_prover_results();
        if (prover_->done()) return root_outcome::closed;
        if (outcome != root_outcome::open) return outcome;
        engine_.set_cutoff(cutoff());
        return engine_.propagate() ? root_outcome::open : root_outcome::closed;
    }
    void prove_until(const std::atomic<bool>& is_finished) {
        while (!is_finished.load() && !prover_->done() && !prover_->stuck() && !context_->limits->over()) {
            prover_->take_cutoff(cutoff());
            prover_->work(with_.conflicts_per_slice, with_.visits_per_slice, &is_finished);
        }
        if (prover_->done()) context_->limits->finish();
    }
    /// Keeps the better of two points.
    void take_point(const std::shared_ptr<const std::vector<double>>& other) {
        const auto& p = *context_->instance;
        if (other && (!point_ || p.objective_of(*other) < p.objective_of(*point_))) point_ = other;
    }

    /// Runs dives and neighbourhood searches, then reduced-cost fixing with the incumbent.
    root_outcome run_heuristics() {
        const auto wanted = works_in_parallel() ? std::size_t{2} : 1;
        const auto count = std::min(wanted, context_->limits->memory_left() / (engine_.bytes() + lp_->bytes()));
        if (count == 0) return root_outcome::open;
        std::vector<std::unique_ptr<tree_worker>> all;
        for (std::size_t k = 0; k < count; ++k)
            all.push_back(std::make_unique<tree_worker>(*context_, engine_, *lp_));
        search_points(all);
        if (prover_ && prover_->done()) return root_outcome::closed;
        for (const auto& w : all) {
            if (w->engine().refuted()) return root_outcome::closed;
            for (const auto& fact : w->found().global_bounds)
                if (!engine_.imply_at_root(fact)) return root_outcome::closed;
        }
        return fix_by_reduced_costs() ? root_outcome::open : root_outcome::closed;
    }
    /// Divides the heuristics for first points among the workers. If a point is already known, the second worker
    /// improves this point. Threads without a worker continue the proof.
    void search_points(tree_workers all) {
        const bool improves = point_ && all.size() > 1;
        run_on(all, [&](heuristic_controller& controller, tree_worker& w, const node& root, std::size_t k) {
            if (!improves)
                controller.points_at_root(w, root, k, all.size());
            else if (k == 0)
                controller.points_at_root(w, root);
            else
                controller.neighbours_at_root(w, root);
        });
        if (!improves)
            run_on(all.first(1), [](heuristic_controller& controller, tree_worker& w, const node& root, std::size_t) {
                controller.neighbours_at_root(w, root);
            });
    }
    template <class Part> void run_on(tree_workers all, const Part& part) {
        node root;
        root.bound = bound_;
        const auto jobs = std::max<std::size_t>(all.size(), proves_in_parallel() ? 2 : 1);
        std::atomic<std::size_t> at_work{0}; // there may be fewer threads than jobs
        std::atomic<bool> is_finished{false};
        const auto search = [&](std::size_t k) {
            if (k >= all.size()) return;
            all[k]->take_cutoff(cutoff());
            if (point_) all[k]->found().point = point_;
            heuristic_controller controller{*context_};
            part(controller, *all[k], root, k);
        };
        const auto job = [&](std::size_t k) {
            at_work.fetch_add(1);
            together([&] { search(k); });
            if (at_work.fetch_sub(1) == 1)
                is_finished.store(true);
            else if (proves_in_parallel())
                together([&] { prove_until(is_finished); });
        };
        parallel::workers{jobs, job}.run(jobs);
        for (const auto& w : all) {
            w->found().publish(*context_);
            take_point(w->found().point);
        }
        merge_prover_results();
    }
    /// Runs `work` on one of several threads. If `work` throws, the other threads stop, too.
    template <class Work> void together(const Work& work) {
        try {
            work();
        } catch (...) {
            context_->limits->end(limit::stop_requested); // stops the other threads
            throw;
        }
    }

    root_outcome solve_relaxation() {
        lp_->follow(engine_.bounds());
        const auto status = lp_->solve(*context_->limits, infinity);
        account();
        if (status == lp_status::stopped) {
            raise(lp_->bound());
            return root_outcome::stopped;
        }
        if (status == lp_status::unbounded) {
            offer_point();
            return root_outcome::unbounded;
        }
        if (status == lp_status::infeasible)
            return proves(lp_->solver().infeasibility_ray()) ? root_outcome::closed : root_outcome::open;
        raise(lp_->bound());
        if (status != lp_status::optimal) return root_outcome::open;
        if (!context_->instance->has_integers()) {
            offer_point();
            if (bound_ > cutoff()) return root_outcome::closed;
        }
        round_point();
        if (!fix_by_reduced_costs()) return root_outcome::closed;
        if (context_->options->cuts && context_->instance->has_integers())
            static_cast<void>(separation{*context_, engine_.bounds(), implied_}.run(*lp_, [&](double b) {
                account();
                raise(b);
            }));
        return fix_by_reduced_costs() ? root_outcome::open : root_outcome::closed;
    }
    void round_point() {
        if (!context_->options->heuristics) return;
        if (const auto values = round_by_locks(*context_->instance, locks{*context_->instance}, lp_->point()))
            offer(*values);
    }
    /// Offers the relaxation's point without rounding it.
    void offer_point() { offer(lp_->point()); }
    void offer(std::span<const double> values) {
        worker_results found;
        found.cutoff = cutoff();
        if (!found.offer(*context_, values)) return;
        point_ = found.point;
        found.publish(*context_);
    }
    bool proves(std::span<const double> ray) {
        proof_row proof{*context_->instance, lp_->cuts()};
        proof.build(ray, 0.0, infinity);
        proof.normalize(engine_.bounds());
        return proof.contradicts(engine_.bounds());
    }
    /// Returns false if no point is left below the cutoff.
    bool fix_by_reduced_costs() {
        engine_.set_cutoff(cutoff());
        if (cutoff() < infinity && lp_->solver().duals().size() == context_->instance->rows() + lp_->cuts().size()) {
            proof_row proof{*context_->instance, lp_->cuts()};
            proof.build(lp_->solver().duals(), 1.0, cutoff());
            proof.normalize(engine_.bounds());
            if (!engine_.apply(proof.terms(), proof.safe_limit())) return false;
        }
        if (!engine_.propagate()) return false;
        context_->watch(engine_.bounds(), {}, cutoff(), "reduced costs at the root");
        return true;
    }

    const context* context_;
    propagator engine_;
    implied_bounds implied_;
    std::unique_ptr<prover> prover_;
    std::unique_ptr<relaxation> lp_;
    std::shared_ptr<const std::vector<double>> point_;
    double bound_ = -infinity;
    memory_share tree_share_;
};

} // namespace optpipe::milp::search
