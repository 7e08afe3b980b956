#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/conflict/prover.hpp"
#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/heuristics/controller.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/tree/node_queue.hpp"
#include "optpipe/milp/search/tree/tree_worker.hpp"
#include "optpipe/parallel/workers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Parameters for the division of work in `parallel_tree_search`. Not tuned.
struct tree_search_parameters {
    /// Number of workers in deterministic mode, whatever the number of threads. More workers keep more threads busy,
    /// but choose worse nodes.
    std::size_t workers_of_rounds = 4;
    /// Number of nodes per dive. With few nodes, the search stays close to the best bound. With many nodes, most
    /// relaxations start from the basis of a similar node.
    std::size_t nodes_per_dive = 60;
    /// Limits of a slice of the prover's work. The first slice's limits are divided by `first_slice_divisor`.
    std::size_t conflicts_per_slice = 1500;
    std::size_t visits_per_slice = 1'000'000;
    std::size_t first_slice_divisor = 16;
    /// After this number of conflicts without progress, the prover gets half of the tree's effort.
    std::size_t stall_limit = 2'000;
    /// Largest number of global bounds kept for workers that haven't applied them. Bounds beyond this number are
    /// dropped.
    std::size_t most_global_bounds = 100'000;
};

/// Parallel branch and bound: the workers, their shared data, and the assignment of nodes. In opportunistic mode, each
/// free thread takes the next best node. In deterministic mode, a fixed number of workers take the best nodes in
/// rounds. The results of a round are merged in the order of the workers.
class parallel_tree_search {
public:
    parallel_tree_search(const context& c, std::unique_ptr<prover> p)
        : context_{&c}, prover_{std::move(p)}, share_{*c.limits}, shared_{c.instance->columns()} {}

    /// Starts a tree with the given root. Without this call, there is no tree.
    void start_tree(const propagator& engine, const relaxation& lp, node root) {
        const auto wanted =
            deterministic() ? with_.workers_of_rounds : std::max<std::size_t>(1, context_->options->threads);
        const auto count = std::min(wanted, context_->limits->memory_left() / (engine.bytes() + lp.bytes()));
        if (count == 0) {
            context_->limits->end(limit::memory);
            return;
        }
        for (std::size_t k = 0; k < count; ++k)
            workers_.push_back(std::make_unique<tree_worker>(*context_, engine, lp));
        for (std::size_t k = 0; k < count; ++k)
            heuristics_.emplace_back(*context_, k);
        busy_bounds_.assign(count, infinity);
        applied_by_.assign(count, 0);
        context_->limits->expect_relaxations(std::max<std::size_t>(1, context_->options->threads));
        root_bound_ = root.bound;
        tree_effort_ = lp.effort(); // lets the prover use as much effort as the root has used
        queue_.push(std::move(root));
        has_tree_ = true;
        account();
    }
    /// Call this only inside the caller's arena, because it starts TBB tasks.
    void run() {
        if (deterministic())
            run_deterministic();
        else
            run_opportunistic();
    }

    /// Lower bound on the objective of all points below the cutoff.
    [[nodiscard]] double bound() const {
        const std::scoped_lock lock{mutex_};
        return bound_locked();
    }
    /// Whether the search ended because the problem's relaxation is unbounded.
    [[nodiscard]] bool is_unbounded() const { return is_unbounded_; }
    /// Called from time to time with the bound, by one thread at a time.
    std::function<void(double)> report;

private:
    static constexpr tree_search_parameters with_{};

    using clock = std::chrono::steady_clock;

    [[nodiscard]] bool deterministic() const { return context_->options->deterministic; }
    /// Must not be called while another thread runs the prover.
    [[nodiscard]] bool prover_works() const { return prover_ && !prover_->stuck() && !prover_->done(); }

    double bound_locked() const {
        double tree = std::min(unresolved_, queue_.least_bound());
        for (const double b : busy_bounds_)
            tree = std::min(tree, b);
        if (!has_tree_) tree = -infinity;
        return std::max({tree, prover_bound_, context_->help.bound, root_bound_});
    }

    // -- freely ------------------------------------------------------------------------------------------------------

    void run_opportunistic() {
        const auto threads = std::max<std::size_t>(1, context_->options->threads);
        const auto job = [this](std::size_t t) {
            try {
                work_opportunistically(t);
            } catch (...) {
                context_->limits->end(limit::stop_requested); // stops the other threads
                throw;
            }
        };
        parallel::workers{threads, job}.run(threads);
    }
    void work_opportunistically(std::size_t t) {
        while (!context_->limits->over() && !finish_if_done()) {
            if (take_prover(t))
                run_prover_slice();
            else if (!run_tree_slice(t))
                wait_for_work();
        }
        wake_.notify_all();
    }
    /// Whether thread `t` should run the prover. The first thread runs the prover while the prover makes progress.
    /// Other threads run the prover if the tree has no nodes for them.
    bool take_prover(std::size_t t) {
        const std::scoped_lock lock{mutex_};
        if (prover_busy_ || !prover_works()) return false;
        const bool is_due = t == 0 && proof_is_due();
        if (has_tree_ && !queue_.empty() && !is_due) return false;
        prover_busy_ = true;
        leave_prover_.store(false);
        if (has_tree_ && !is_due) wait_in_prover(true);
        return true;
    }
    [[nodiscard]] bool proof_is_due() const { return handicap() * proof_effort_ <= tree_effort_; }
    [[nodiscard]] std::size_t handicap() const { return prover_->stalled_conflicts() < with_.stall_limit ? 1 : 2; }
    void wait_in_prover(bool waits) {
        if (waits == waits_in_prover_) return;
        waits_in_prover_ = waits;
        waits ? ++waiting_ : --waiting_;
    }
    void run_prover_slice() {
        {
            const std::scoped_lock lock{mutex_};
            sync_prover();
        }
        const auto before = prover_->effort();
        prover_->work(with_.conflicts_per_slice / slice_divisor_, with_.visits_per_slice / slice_divisor_,
                      &leave_prover_);
        const std::scoped_lock lock{mutex_};
        wait_in_prover(false);
        slice_divisor_ = std::max<std::size_t>(1, slice_divisor_ / 2);
        proof_effort_ += prover_->effort() - before;
        merge_prover();
        prover_busy_ = false;
        report_now();
    }
    bool run_tree_slice(std::size_t t) {
        node n;
        {
            const std::scoped_lock lock{mutex_};
            queue_.prune(cutoff());
            if (queue_.empty() || t >= workers_.size()) return false;
            n = queue_.pop();
            busy_bounds_[t] = n.bound;
            sync_worker(t);
        }
        std::vector<node> open;
        const auto before = workers_[t]->effort();
        heuristics_[t].before_dive(*workers_[t], n);
        workers_[t]->dive(std::move(n), with_.nodes_per_dive, open, [this](std::vector<node>& left) { share(left); });
        const std::scoped_lock lock{mutex_};
        tree_effort_ += workers_[t]->effort() - before;
        busy_bounds_[t] = infinity;
        merge_worker(t, open);
        report_now();
        notify_waiters();
        return true;
    }
    /// Gives a waiting thread a dive's shallowest node, which has the largest subtree.
    void share(std::vector<node>& left) {
        if (waiting_.load(std::memory_order_relaxed) == 0 || left.size() < 2) return;
        const std::scoped_lock lock{mutex_};
        if (queue_.size() >= waiting_) return;
        queue_.push(std::move(left.front()));
        left.erase(left.begin());
        notify_waiters();
    }
    void notify_waiters() {
        if (waits_in_prover_ && !queue_.empty()) leave_prover_.store(true);
        wake_.notify_all();
    }
    void wait_for_work() {
        std::unique_lock lock{mutex_};
        ++waiting_;
        wake_.wait_for(lock, std::chrono::milliseconds{5});
        --waiting_;
    }

    // -- in rounds ---------------------------------------------------------------------------------------------------

    void run_deterministic() {
        while (!context_->limits->over() && !context_->limits->over_counts() && !finish_if_done()) {
            std::vector<node> heads;
            queue_.prune(cutoff());
            while (!queue_.empty() && heads.size() < workers_.size())
                heads.push_back(queue_.pop());
            round(heads);
            report_now();
        }
    }
    void round(std::vector<node>& heads) {
        const bool proof = prover_works() && (heads.empty() || ++rounds_ % handicap() == 0);
        std::vector<std::vector<node>> open(heads.size());
        for (std::size_t k = 0; k < heads.size(); ++k) {
            busy_bounds_[k] = heads[k].bound;
            sync_worker(k);
        }
        if (proof) sync_prover();
        const auto work = [&](std::size_t k) {
            if (k == heads.size()) return prover_->work(with_.conflicts_per_slice, with_.visits_per_slice);
            heuristics_[k].before_dive(*workers_[k], heads[k]);
            workers_[k]->dive(std::move(heads[k]), with_.nodes_per_dive, open[k], [](std::vector<node>&) {});
        };
        const auto tasks = heads.size() + (proof ? 1 : 0);
        parallel::workers{tasks, work}.run(context_->options->threads);
        for (std::size_t k = 0; k < heads.size(); ++k) {
            busy_bounds_[k] = infinity;
            merge_worker(k, open[k]);
        }
        if (proof) merge_prover();
    }

    // Uses shared data, so the caller must hold the lock.

    [[nodiscard]] double cutoff() const { return context_->cutoff_below(context_->incumbent_objective()); }

    void sync_worker(std::size_t k) {
        auto& w = *workers_[k];
        w.apply_global_bounds(std::span{global_bounds_}.subspan(applied_by_[k]));
        applied_by_[k] = global_bounds_.size();
        w.take_cutoff(cutoff());
        w.history() = shared_;
        if (point_) w.found().point = point_;
    }
    void merge_worker(std::size_t k, std::vector<node>& open) {
        auto& w = *workers_[k];
        take_point(w.found());
        w.found().publish(*context_);
        for (const auto& seen : std::exchange(w.observations(), {}))
            shared_.add(seen);
        gather_global_bounds(w.found());
        for (auto& n : open)
            queue_.push(std::move(n));
        unresolved_ = std::min(unresolved_, w.unresolved());
        is_unbounded_ = is_unbounded_ || w.found().is_unbounded;
        if (w.engine().refuted()) finished_ = true;
        w.account();
        account();
    }
    void sync_prover() {
        prover_->apply_global_bounds(std::span{global_bounds_}.subspan(applied_by_prover_));
        applied_by_prover_ = global_bounds_.size();
        prover_->take_cutoff(cutoff());
        prover_->take_bound(bound_locked());
        if (point_) prover_->take_point(*point_);
    }
    /// Keeps the best point that any worker has found, in terms of the problem.
    void take_point(const worker_results& f) {
        if (!f.point || f.point == point_) return;
        const double objective = context_->instance->objective_of(*f.point);
        if (objective >= point_objective_) return;
        point_objective_ = objective;
        point_ = f.point;
    }
    void merge_prover() {
        take_point(prover_->found());
        prover_->found().publish(*context_);
        gather_global_bounds(prover_->found());
        prover_bound_ = std::max(prover_bound_, prover_->bound());
        if (prover_->done()) finished_ = true;
    }
    void gather_global_bounds(worker_results& f) {
        if (global_bounds_.size() < with_.most_global_bounds)
            global_bounds_.insert(global_bounds_.end(), f.global_bounds.begin(), f.global_bounds.end());
        f.global_bounds.clear();
    }
    void account() { share_.set(queue_.bytes() + bytes_of(global_bounds_)); }
    void report_now() {
        if (report) report(bound_locked());
    }

    bool finish_if_done() {
        const std::scoped_lock lock{mutex_};
        if (!finished_ && has_tree_ && queue_.empty() && all_idle() && unresolved_ == infinity) finished_ = true;
        if (!finished_ && is_unbounded_)
            context_->limits->halt();
        else if (!finished_ && is_exhausted())
            context_->limits->end(limit::numerics);
        if (!finished_ && within_gap()) finished_ = true;
        if (finished_) context_->limits->finish();
        return context_->limits->over();
    }
    [[nodiscard]] bool all_idle() const {
        return std::all_of(busy_bounds_.begin(), busy_bounds_.end(), [](double b) { return b == infinity; });
    }
    [[nodiscard]] bool is_exhausted() const {
        return (!has_tree_ || (queue_.empty() && all_idle())) && !prover_busy_ && !prover_works();
    }
    [[nodiscard]] bool within_gap() const {
        if (!context_->best->exists()) return false;
        const double objective = context_->incumbent_objective();
        const double bound = bound_locked();
        return bound > cutoff() || objective - bound <= context_->instance->tolerances.zero * std::abs(objective);
    }

    const context* context_;
    std::unique_ptr<prover> prover_;
    memory_share share_;
    std::vector<std::unique_ptr<tree_worker>> workers_;
    std::vector<heuristic_controller> heuristics_;

    mutable std::mutex mutex_;
    std::condition_variable wake_;
    node_queue queue_;
    std::vector<double> busy_bounds_;
    pseudocosts shared_;
    std::vector<literal> global_bounds_;
    std::vector<std::size_t> applied_by_;
    std::size_t applied_by_prover_ = 0;
    std::shared_ptr<const std::vector<double>> point_;
    double point_objective_ = infinity;
    double unresolved_ = infinity;
    double prover_bound_ = -infinity;
    double root_bound_ = -infinity;
    std::size_t proof_effort_ = 0;
    std::size_t tree_effort_ = 0;
    std::size_t rounds_ = 0;
    std::size_t slice_divisor_ = with_.first_slice_divisor;
    /// `waiting_` is the number of threads without a node. `waits_in_prover_` tells whether a waiting thread runs the
    /// prover. `leave_prover_` calls a thread in the prover back to the tree.
    std::atomic<std::size_t> waiting_{0};
    bool waits_in_prover_ = false;
    std::atomic<bool> leave_prover_{false};
    bool prover_busy_ = false;
    bool has_tree_ = false;
    bool is_unbounded_ = false;
    bool finished_ = false;
};

} // namespace optpipe::milp::search
