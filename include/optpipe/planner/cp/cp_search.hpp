#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/clause_pool.hpp"
#include "optpipe/planner/cp/neighbourhoods.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/prover.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// How `cp_search` divides its effort, and the sizes of problems that it accepts.
struct cp_parameters {
    /// Number of conflicts per slice in the first round. In each round, each search gets one slice. With short slices,
    /// searches for the incumbent and for the bound alternate more often. With long slices, each search makes more use
    /// of its learned clauses. Not tuned.
    std::size_t first_round = 200;
    /// Each round is longer than the previous round by the factor 1 + 1 / `round_growth`. Not tuned.
    std::size_t round_growth = 2;
    /// The conflicts of a slice for the incumbent, divided by the conflicts of a slice for bounds. Each search for a
    /// bound starts anew. A larger value leads to earlier proofs, but to slightly lower bounds if there is no proof. A
    /// value of 2 was compared with 1 on 40 small random problems with 5 s of processor time each. Four incumbents were
    /// better, one more problem got an incumbent, and three bounds were lower by 0.2 to 2 %. A value of 8 was compared
    /// with 2 on 12 other problems with 3 s each. No bound was lower, and no proof came later. Problem
    /// store-v-p2-m4-k100 was proven after 9.2 and 9.6 s (with a value of 2, after 10.4 and 11.5 s).
    std::size_t incumbent_share = 8;
    /// Number of conflicts in one neighbourhood. Not tuned.
    std::size_t nearby_conflicts = 200;
    /// A search for a bound tries to raise the bound by at least 1 / `most_gap_divisor` of the gap. Smaller steps are
    /// decided sooner, but raise the bound by less. Not tuned.
    std::int64_t most_gap_divisor = 64;
    /// Cost of setting up a solver, in propagation steps per clause and per variable. Setting up 1,570,000 clauses and
    /// variables took 0.27 s, at 0.4 µs per step (4 ranks, 8 microbatches, 21 storage options).
    double steps_of_setup = 0.43;
    /// Problems with more than this number of tasks are refused. Building the model can't be interrupted. The time of
    /// building grows with the square of the number of tasks. For random problems with 2000 tasks, building took 0.02
    /// to 0.16 s.
    std::size_t most_tasks = 2000;
    /// The largest number of clauses that link the microbatches of consecutive stages (`stage_storage`). The clauses
    /// take tens of megabytes.
    std::size_t most_links = 200'000;
};

struct cp_options {
    std::uint64_t seed = 1;
    /// The conflict limit. If the search ends at the conflict limit or the step limit, the result is reproducible.
    std::size_t conflicts = std::numeric_limits<std::size_t>::max();
    /// The limit on the number of propagation steps. A step takes half a microsecond to a few microseconds, whatever
    /// the size of the problem. The setup of a search also counts.
    std::size_t steps = std::numeric_limits<std::size_t>::max();
    cp_parameters parameters{};
};

namespace cp::detail {

/// The learned clauses that all searches of one problem share. Each form of the model has its own pool.
class shared_clauses {
public:
    [[nodiscard]] clause_pool& of(overtaking form) { return pools_[static_cast<std::size_t>(form)]; }

private:
    static constexpr std::size_t forms = static_cast<std::size_t>(overtaking::allowed) + 1;
    std::array<clause_pool, forms> pools_{};
};

/// Approximate number of clauses of the exact model per stage and triple of microbatches.
inline constexpr std::size_t clauses_per_link = 3;

/// The number of tasks of a microbatch on a stage. The tasks are F, I and W, and the tasks of all storage options of
/// the stage.
[[nodiscard]] inline std::size_t tasks_per_microbatch(const problem& p, stage s) {
    std::size_t tasks = 3;
    for (std::size_t i = 0; i < p.storage_options(s); ++i) {
        const auto o = p.storage_of(s, i);
        tasks += (o.offloads() ? 2U : 0U) + (o.extra_work() > duration{} ? 1U : 0U);
    }
    return tasks;
}
[[nodiscard]] inline bool is_too_large(const problem& p, const cp_parameters& with) {
    std::size_t tasks = 0;
    for (const stage s : p.graph.all_stages())
        tasks += p.graph.microbatches() * tasks_per_microbatch(p, s);
    return tasks > with.most_tasks;
}
/// Whether the exact model has too many clauses that link microbatches.
[[nodiscard]] inline bool has_too_many_links(const problem& p, const cp_parameters& with) {
    if (!is_plain(p)) return false; // only models of plain problems have clauses that link microbatches
    const auto m = p.graph.microbatches();
    return clauses_per_link * p.graph.stages() * m * m * m > with.most_links;
}

/// A set of searches for better schedules and for better bounds, all on one state. Searches for the incumbent look for
/// better schedules, in the complete model or in large neighbourhoods of the incumbent. Searches for the bound test
/// objectives near the bound, and raise the bound above infeasible objectives. All searches on a state share learned
/// clauses, even across objects of this class. `run` resumes where the last call stopped.
class state_search {
public:
    state_search(search_state& state, std::uint64_t seed, const cp_parameters& with)
        : seed_{seed}, with_{with}, problem_{&state.problem()}, clauses_{state.shared<shared_clauses>()},
          effort_{with.first_round} {}

    /// `state` must be a view of the same state in every call.
    void run(search_state& state, const cp_options& options) {
        state_ = &state;
        conflict_limit_ = after(spent_, options.conflicts);
        step_limit_ = after(spent_steps_, options.steps);
        if (!bounding_ && !build()) return;
        if (incumbent_searches_.empty() && !begin()) return;
        while (!finished() && continue_slice()) {
        }
    }

private:
    static constexpr std::string_view name = "cp";
    /// A search in neighbourhoods of the incumbent (large neighbourhood search).
    struct nearby_search {
        const pipeline_model* model;
        std::unique_ptr<prover> search;
        neighbourhoods around;
        /// The incumbent and its objective.
        assignment incumbent{};
        duration objective = duration::unlimited();
        /// False once no better schedule exists in the model.
        bool active = true;
    };
    struct incumbent_search {
        const pipeline_model* model;
        std::unique_ptr<prover> search;
        bool started = false;
        /// False once the search's model is solved or infeasible within its limit.
        bool active = true;
    };

    [[nodiscard]] static std::size_t after(std::size_t spent, std::size_t more) {
        return spent + std::min(more, std::numeric_limits<std::size_t>::max() - spent);
    }
    /// Builds the model that proves bounds. Returns false if there is nothing to search.
    bool build() {
        if (state_->objective().is_unlimited() && is_described_by_costs(*problem_)) try_builders();
        if (state_->bound() <= duration{}) state_->raise_bound(bounds_of(*problem_).best(), name);
        if (state_->done() || is_too_large(*problem_, with_)) return false;
        const auto form = bounding_form(*problem_);
        if (form == overtaking::allowed && has_too_many_links(*problem_, with_)) return false;
        bounding_.emplace(*problem_, form);
        return true;
    }
    /// Makes the first searches. Returns false if the search for the bound at the root is still incomplete.
    bool begin() {
        if (!bound_from_root()) return false;
        incumbent_searches_.push_back({&*bounding_, new_search(*bounding_)});
        if (bounding_->has_choices()) {
            ordered_.emplace(*problem_, overtaking::forbidden);
            incumbent_searches_.push_back({&*ordered_, new_search(*ordered_)});
        }
        const auto& nearby = model_for_neighbourhoods();
        nearby_.emplace(nearby_search{&nearby, new_search(nearby), {nearby, seed_}});
        start_slice(0);
        return true;
    }
    [[nodiscard]] std::unique_ptr<prover> new_prover(const pipeline_model& m) {
        const auto size = static_cast<double>(m.tasks().clauses.size() + m.tasks().variables());
        spent_steps_ += static_cast<std::size_t>(size * with_.steps_of_setup);
        return std::make_unique<prover>(m, seed_);
    }
    [[nodiscard]] std::unique_ptr<prover> new_search(const pipeline_model& m) {
        auto search = new_prover(m);
        search->share(clauses_->of(m.form()));
        return search;
    }
    /// Continues the current slice. Returns false after a round in which no search had work left.
    bool continue_slice() {
        if (search_ < incumbent_searches_.size()) {
            // A better schedule often takes few conflicts. The rest of the slice is used for the next schedule.
            if (spent_ < slice_end_ && improve_incumbent(search_, slice_end_ - spent_))
                any_left_ = true;
            else
                start_slice(search_ + 1);
            return true;
        }
        if (search_ == incumbent_searches_.size()) {
            if (spent_ >= slice_end_ || !improve_nearby(slice_end_ - spent_)) start_slice(search_ + 1);
            return true;
        }
        any_left_ |= improve_bound(std::max<std::size_t>(1, slice_end_ - std::min(spent_, slice_end_)));
        if (finished()) return true;
        effort_ += effort_ / with_.round_growth;
        start_slice(0);
        return std::exchange(any_left_, false);
    }
    void start_slice(std::size_t which) {
        search_ = which;
        const bool bounds = which == incumbent_searches_.size() + 1;
        slice_end_ = spent_ + (bounds ? effort_ / with_.incumbent_share : effort_);
    }
    [[nodiscard]] bool finished() const {
        return state_->done() || spent_ >= conflict_limit_ || spent_steps_ >= step_limit_;
    }
    /// Whether a search must stop `steps` steps after it was continued.
    [[nodiscard]] bool is_enough(std::size_t steps) const {
        return state_->done() || spent_steps_ + steps >= step_limit_;
    }
    [[nodiscard]] std::size_t allowed(std::size_t effort) const {
        return std::min(effort, conflict_limit_ - std::min(spent_, conflict_limit_));
    }
    void try_builders() {
        for_each_builder([&](const auto& builder) {
            if (state_->done()) return;
            if (const auto built = build_schedule(*problem_, builder)) state_->offer(*built, builder.name);
        });
    }

    /// The target of the search in ticks, plus the rounding error. If no schedule reaches the target, no improvement
    /// exists.
    [[nodiscard]] ticks target() const {
        const auto wanted = state_->target();
        const auto& time = bounding_->time();
        const auto exact =
            wanted.is_unlimited() ? time.nearest(problem_->serial_time().value()) : time.below(wanted.value());
        return exact + rounding();
    }
    /// The largest error that rounding can make in a sum of durations.
    [[nodiscard]] ticks rounding() const {
        if (bounding_->time().is_exact()) return 0;
        // The largest number of durations and hops of a microbatch on a stage. A duration or hop has an error of at
        // most half a tick.
        constexpr std::size_t most = 8;
        return static_cast<ticks>(most * problem_->graph.stages() * problem_->graph.microbatches());
    }
    /// Records that no schedule has an objective of `most` ticks or less.
    void exclude(ticks most) {
        excluded_ = std::max(excluded_, most);
        if (state_->objective().is_unlimited() && most >= target())
            state_->raise_bound(duration::unlimited(), name);
        else
            state_->raise_bound(duration{bounding_->time().value(most + 1 - rounding())}, name);
    }

    /// Excludes all objectives below the shared bound, which any strategy may have raised.
    void exclude_below_bound() {
        const auto bound = state_->bound();
        if (bound.is_unlimited()) return; // another strategy has just proven that there is no schedule
        excluded_ = std::max(excluded_, bounding_->time().below(bound.value()) - 1 - rounding());
    }

    /// Excludes objectives that propagation at the root finds infeasible. Bisects the interval between the bound and
    /// the target until its length is divided by `most_gap_divisor`. Returns false if the bisection isn't complete yet.
    bool bound_from_root() {
        exclude_below_bound();
        while (!finished()) {
            if (!is_probing_) {
                // The target is tried first: it is often infeasible at the root.
                const bool first = root_feasible_ == std::numeric_limits<ticks>::max();
                const auto high = std::min(target(), root_feasible_);
                if (first) root_precision_ = std::max<ticks>(1, (high - excluded_) / with_.most_gap_divisor);
                if (high - excluded_ <= root_precision_) {
                    root_probe_.reset();
                    return true;
                }
                if (!root_probe_) root_probe_ = new_prover(*bounding_);
                root_probe_->limit(first ? high : excluded_ + (high - excluded_) / 2);
            }
            const auto before = root_probe_->steps();
            const bool feasible =
                root_probe_->may_be_feasible([&] { return is_enough(root_probe_->steps() - before); });
            spent_steps_ += root_probe_->steps() - before;
            is_probing_ = feasible && finished();
            if (is_probing_) return false;
            if (feasible) {
                root_feasible_ = root_probe_->limit(); // later probes test lower objectives
            } else {
                exclude(root_probe_->limit());
                root_probe_.reset();
            }
        }
        return false;
    }

    /// Continues the search for a better schedule in one model. Returns false if search `i` is settled.
    bool improve_incumbent(std::size_t i, std::size_t effort) {
        auto& search = incumbent_searches_[i];
        const auto wanted = target();
        if (wanted < search.search->limit() || !search.started) {
            search.started = search.active = true;
            search.search->limit(wanted);
            if (const auto best = state_->incumbent()) search.search->hint(*best);
        }
        if (!search.active || waits_for_fifo(search)) return false;
        const auto answer = count(*search.search, allowed(effort));
        if (answer == search_status::stopped) return true;
        search.active = false;
        if (answer == search_status::infeasible) {
            if (search.model->form() != overtaking::forbidden)
                exclude(search.search->limit());
            else
                add_exact();
        } else if (!offer(*search.model, search.search->solution())) {
            add_exact();
        }
        return true;
    }
    /// Searches one neighbourhood of the incumbent. Returns false if no neighbourhood has a better schedule.
    bool improve_nearby(std::size_t effort) {
        auto& [model, search, around, incumbent, objective, active] = *nearby_;
        const auto best = state_->incumbent();
        if (!best || !active) return false;
        if (const auto now = objective_of(*problem_, *best); now < objective) {
            objective = now;
            incumbent = assignment_of(*model, *best);
        }
        search->limit(target() - rounding());
        search->assume(around.next(incumbent));
        search->hint(incumbent);
        const auto answer = count(*search, allowed(std::min(effort, with_.nearby_conflicts)));
        around.adapt(answer);
        active = answer != search_status::infeasible;
        // A neighbourhood without better schedules doesn't count as work that is left: there is always another one.
        if (answer == search_status::solved) any_left_ |= offer(*model, search->solution());
        return active;
    }
    /// Whether the search in the exact model must wait until the search without overtaking is settled. The exact model
    /// is much harder: any two microbatches may overtake each other.
    [[nodiscard]] bool waits_for_fifo(const incumbent_search& search) const {
        return search.model->form() == overtaking::allowed && ordered_ && incumbent_searches_[1].active;
    }
    /// Adds the exact model. The exact model is needed if the model that proves bounds allows orders without a
    /// schedule.
    void add_exact() {
        const auto is_there = [](const incumbent_search& each) { return each.model->form() == overtaking::allowed; };
        if (std::any_of(incumbent_searches_.begin(), incumbent_searches_.end(), is_there)) return;
        if (const auto* const exact = exact_model()) incumbent_searches_.push_back({exact, new_search(*exact)});
    }
    /// The model in which microbatches may overtake each other. Null if it is too large.
    [[nodiscard]] const pipeline_model* exact_model() {
        if (bounding_->form() == overtaking::allowed) return &*bounding_;
        if (!exact_ && !has_too_many_links(*problem_, with_)) exact_.emplace(*problem_, overtaking::allowed);
        return exact_ ? &*exact_ : nullptr;
    }
    [[nodiscard]] const pipeline_model& model_for_neighbourhoods() {
        if (!bounding_->has_choices()) return *bounding_;
        const auto* const exact = exact_model();
        return exact ? *exact : *ordered_;
    }
    /// Searches for a schedule with an objective of at most bound + gap / `gap_divisor_`. `gap_divisor_` is doubled
    /// after a timeout, and halved after a refutation. Returns false if the bound has reached the least feasible
    /// objective.
    bool improve_bound(std::size_t effort) {
        exclude_below_bound();
        const auto high = std::min(target(), least_feasible_);
        if (!bound_search_ || bound_search_->limit() <= excluded_ || bound_search_->limit() >= high) {
            if (high - excluded_ <= 1) return false;
            bound_search_ = new_search(*bounding_);
            bound_search_->limit(excluded_ + std::max<ticks>(1, (high - excluded_) / gap_divisor_));
        }
        const auto answer = count(*bound_search_, allowed(effort));
        if (answer == search_status::stopped) {
            // With the largest divisor, the search continues in later slices until it has an answer.
            if (finished() || gap_divisor_ >= with_.most_gap_divisor) return true;
            gap_divisor_ *= 2;
        } else if (answer == search_status::infeasible) {
            exclude(bound_search_->limit());
            gap_divisor_ = std::max<ticks>(2, gap_divisor_ / 2);
        } else {
            least_feasible_ = bound_search_->limit();
            offer(*bounding_, bound_search_->solution());
        }
        bound_search_.reset();
        return true;
    }
    search_status count(prover& search, std::size_t effort) {
        const auto before = search.conflicts();
        const auto steps_before = search.steps();
        const auto answer = search.search(effort, [&] { return is_enough(search.steps() - steps_before); });
        spent_ += search.conflicts() - before + 1;
        // Conflicts count as steps, too, because a solver that has given up takes no steps.
        spent_steps_ += search.steps() - steps_before + search.conflicts() - before;
        return answer;
    }
    /// Offers the schedule of a solution. Returns false if the solution has no schedule.
    bool offer(const pipeline_model& m, const assignment& a) {
        const auto found = schedule_of(m, a);
        if (!found) return false;
        if (is_valid(*problem_, *found)) state_->offer(*found, name);
        return true;
    }

    search_state* state_ = nullptr;
    std::uint64_t seed_;
    cp_parameters with_;
    const problem* problem_;
    std::shared_ptr<shared_clauses> clauses_;
    std::optional<pipeline_model> bounding_;
    std::optional<pipeline_model> ordered_;
    std::optional<pipeline_model> exact_;
    std::vector<incumbent_search> incumbent_searches_;
    std::optional<nearby_search> nearby_;
    std::unique_ptr<prover> root_probe_;
    /// Whether propagation at the root, with the limit of `root_probe_`, is in progress.
    bool is_probing_ = false;
    /// The least objective that propagation at the root couldn't refute.
    ticks root_feasible_ = std::numeric_limits<ticks>::max();
    ticks root_precision_ = 1;
    std::unique_ptr<prover> bound_search_;
    ticks gap_divisor_ = 2;
    ticks excluded_ = 0;
    ticks least_feasible_ = std::numeric_limits<ticks>::max();
    /// Number of conflicts of a slice in the current round.
    std::size_t effort_;
    /// `search_` is the index of the search that has the current slice. The search for the bound comes last. The slice
    /// ends when the number of conflicts is `slice_end_`.
    std::size_t search_ = 0;
    std::size_t slice_end_ = 0;
    /// Whether a search of this round had something left to search.
    bool any_left_ = false;
    /// Numbers of conflicts and of propagation steps until now. The call ends when one of the numbers reaches its
    /// limit.
    std::size_t spent_ = 0;
    std::size_t spent_steps_ = 0;
    std::size_t conflict_limit_ = 0;
    std::size_t step_limit_ = 0;
};

/// The paused searches of a state.
class paused_searches {
public:
    /// Takes out a paused search. Null if no search is paused.
    [[nodiscard]] std::unique_ptr<state_search> take() {
        const std::scoped_lock lock{mutex_};
        if (searches_.empty()) return nullptr;
        auto result = std::move(searches_.back());
        searches_.pop_back();
        return result;
    }
    void put(std::unique_ptr<state_search> search) {
        const std::scoped_lock lock{mutex_};
        searches_.push_back(std::move(search));
    }

private:
    std::mutex mutex_{};
    std::vector<std::unique_ptr<state_search>> searches_{};
};

} // namespace cp::detail

/// Constraint programming. Finds the best schedule and proves it optimal. The search branches on the order of pairs of
/// operations, on offloads and on storage options. The search uses propagation and clause learning, but no linear
/// programs. Part of the effort goes to large neighbourhoods of the best schedule, where microbatches may overtake each
/// other if the problem isn't too large.
///
/// Offers schedules and raises the bound during the search. If the state has no schedule, the search starts from the
/// schedule of the best builder. Returns when the search is complete or a limit is reached. For a large problem, the
/// call returns at once, with the structural bound. A problem is large if its operations, with those of all storage
/// options, exceed `cp_parameters::most_tasks`. A problem with recomputing options and many microbatches is also large.
///
/// The search of a call that has returned is kept in the state. The next call with the state, or with a view of the
/// state, resumes the search. The resumed search keeps its seed and parameters. Concurrent calls have separate
/// searches, which share learned clauses.
inline void cp_search(search_state& state, const cp_options& options = {}) {
    const auto paused = state.shared<cp::detail::paused_searches>();
    auto search = paused->take();
    if (!search) search = std::make_unique<cp::detail::state_search>(state, options.seed, options.parameters);
    search->run(state, options);
    paused->put(std::move(search));
}

} // namespace optpipe
