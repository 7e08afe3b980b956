#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_memory.hpp"
#include "optpipe/planner/cp/pipeline_storage.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/planner/cp/solver.hpp"
#include "optpipe/planner/cp/storage_memory.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// A problem as a model of tasks, differences, choices and knapsack constraints, for any target objective.
///
/// *Symmetry.* Take a valid schedule without transfers and assign, on each stage, the k-th forward, the k-th gradient
/// and the k-th weight gradient to microbatch k. After this sorting, the k-th forward of a stage still ends a hop
/// before the k-th of the next stage starts (if n pairs are in order, so are the sorted pairs), and likewise for all
/// other inputs; each memory sees the same amounts at the same times. So some optimal schedule runs the operations of
/// each kind in the order of microbatches.
///
/// With transfers this fails, because a transfer belongs to one forward and one gradient. F0 OFFLOAD0 F1 I1 RELOAD0 I0
/// on a rank that holds one stash has no equivalent in which I0 precedes I1. The three sequences can still be sorted if
/// transfers don't belong to microbatches: `pooled` only requires that at any time no more stashes are taken (by a
/// gradient or an offload) than are available (from a forward or a reload), and no more are reloaded than are
/// offloaded. Every valid schedule gives a solution of `pooled` with the same times, so a target that is infeasible for
/// `pooled` is infeasible for schedules.
///
/// `forbidden` adds that the k-th gradient uses the stash of the k-th forward. The i-th transfer pair can belong to the
/// z-th stash if forward z ends before that pair starts and gradient z starts after it has ended. So z must lie in [β_i
/// + 1, α_i], where α_i forwards end before pair i starts and β_i gradients start before it has ended. Both limits grow
/// with i, so all pairs have distinct stashes if and only if α_j − β_i ≥ j − i + 1 for all i ≤ j (Hall). Every solution
/// of `forbidden` is a valid schedule; conversely, every valid schedule in which microbatches don't overtake each other
/// on a stage is a solution.
///
/// In `pooled`, suppose α_j forwards have ended before pair j ≥ i starts, and let n = j − i + 1. The stashes of the
/// pairs i … j are from these forwards, and their gradients start after pair i has ended. So of the first b gradients,
/// if they start before that, at most α_j − n belong to the first α_j forwards, and b − α_j + n belong to later ones;
/// the last of these is at least the (b + n)-th. If that is a later one, b + n > α_j, then the full pass of a
/// microbatch down and up the pipeline lies between it and the b-th gradient.
///
/// `allowed` leaves the order of microbatches open, except for the forwards of stage 0, which number them: it is exact.
/// If nothing can be offloaded, all three are the sorted model, and exact.
///
/// If splitting is allowed, a full backward is better than I followed at once by W only if I adds to the memory.
class pipeline_model {
public:
    pipeline_model(const problem& p, overtaking how)
        : problem_{&p}, form_{how}, time_{time_grid(p)}, memory_{memory_grid(p)}, lists_{p.has_storage_options()},
          stages_(p.graph.stages()) {
        for (const stage s : p.graph.all_stages())
            add_tasks(s);
        for (const stage s : p.graph.all_stages())
            add_inputs(s);
        order_literals known{model_};
        add_machines(known);
        for (const stage s : p.graph.all_stages()) {
            if (lists_) storage_of(s).add_orders(known);
            if (lists_ && form_ == overtaking::pooled && s.position() > 0)
                storage_of(s).add_links(stages_[s.previous()], known);
            align_weights(s, known);
            if (form_ != overtaking::allowed) add_pool(s, known);
            if (form_ != overtaking::allowed) add_fifo_clauses(s, known);
        }
        for (const rank r : p.graph.all_ranks())
            if (lists_)
                storage_memory{p, r, memory_, stages_, known, model_}.add_knapsacks();
            else
                add_memory_knapsacks(p, r, memory_, stages_, known, model_);
        if (p.objective == objective_kind::span) add_spans(known);
    }

    [[nodiscard]] const model& tasks() const { return model_; }
    [[nodiscard]] const problem& source() const { return *problem_; }
    [[nodiscard]] overtaking form() const { return form_; }
    [[nodiscard]] const grid& time() const { return time_; }
    [[nodiscard]] const per_stage<stage_tasks>& stages() const { return stages_; }
    /// For `span`, a task per rank that starts no later than all others of the rank.
    [[nodiscard]] const std::vector<task_index>& begins() const { return begins_; }
    /// Whether any stash may be offloaded.
    [[nodiscard]] bool offloads() const { return offloads_; }

    /// Adds the constraint that the objective is at most `most`.
    void limit(solver& search, ticks most) const {
        const bool span = problem_->objective == objective_kind::span;
        for (task_index t = 0; t < model_.tasks.size(); ++t)
            search.at_most(t, (span ? 2 * most : most) - model_.tasks[t].length);
        if (!span) return;
        // All starts count from that of the first forward.
        search.at_most(stages_[stage{0}].forward[0], 0);
        for (const auto& e : span_ends_)
            search.tighten(e.difference, e.length - most);
    }

private:
    struct span_end {
        std::size_t difference;
        ticks length;
    };
    using size = std::size_t;

    [[nodiscard]] size count() const { return problem_->graph.microbatches(); }
    [[nodiscard]] ticks length(duration d) const { return time_.nearest(d.value()); }
    [[nodiscard]] stage_storage storage_of(stage s) { return {*problem_, s, form_, time_, stages_[s], model_}; }
    [[nodiscard]] bool sorted() const { return form_ != overtaking::allowed; }

    // Tasks.

    void add_tasks(stage s) {
        const auto& c = problem_->costs[s];
        auto& own = stages_[s];
        const bool limited = is_tight(s);
        for (size k = 0; k < count(); ++k) {
            own.forward.push_back(model_.add_task(length(c.forward)));
            own.gradient.push_back(
                model_.add_task(length(c.backward_input) + (problem_->split_backward ? 0 : length(c.backward_weight))));
            if (problem_->split_backward) own.weight.push_back(model_.add_task(length(c.backward_weight)));
        }
        if (lists_) {
            storage_of(s).add_tasks(limited);
            offloads_ = offloads_ || own.storage.options.size() > 1;
            return;
        }
        if (problem_->split_backward && limited && c.weight_stash > c.activation)
            for (size k = 0; k < count(); ++k) {
                own.full.push_back(model_.add_variable());
                if (!problem_->full_backward) model_.add_clause({!own.full[k]});
            }
        if (limited && problem_->plain_transfer(s)) add_transfer_pairs(s);
    }
    /// Whether the memory of the stage's rank can't hold all stashes at once.
    [[nodiscard]] bool is_tight(stage s) const {
        memory_size all{};
        for (const stage other : problem_->graph.all_stages())
            if (problem_->rank_of(other) == problem_->rank_of(s))
                all += static_cast<double>(count()) *
                       std::max(problem_->costs[other].activation, problem_->costs[other].weight_stash);
        return all > problem_->memory_limit[problem_->rank_of(s)];
    }
    void add_transfer_pairs(stage s) {
        if (problem_->costs[s].activation <= memory_size{}) return;
        const auto transfer = problem_->plain_transfer(s);
        offloads_ = true;
        auto& own = stages_[s];
        literal before = always;
        for (size k = 0; k < count(); ++k) {
            const auto present = model_.add_variable();
            if (sorted() && k > 0) model_.add_implication(present, before);
            before = present;
            own.offload.push_back(model_.add_task(length(transfer->offload), present));
            own.reload.push_back(model_.add_task(length(transfer->reload), present));
        }
    }

    // Differences.

    void add_precedence(task_index from, task_index to, ticks hop = 0) {
        model_.add_difference(from, to, model_.tasks[from].length + hop);
    }
    void add_inputs(stage s) {
        const auto& own = stages_[s];
        for (size k = 0; k < count(); ++k) {
            for (const auto kind : {operation_kind::forward, operation_kind::backward_input,
                                    operation_kind::backward_weight, operation_kind::offload, operation_kind::reload})
                if (!tasks_of(s, kind).empty()) add_inputs_of({s, kind, microbatch{k}});
            // The stash of the k-th reload is known only if tasks belong to microbatches.
            if (!sorted() && !own.reload.empty()) add_precedence(own.reload[k], own.gradient[k]);
            if (!own.full.empty())
                model_.add_difference(own.weight[k], own.gradient[k], -model_.tasks[own.gradient[k]].length,
                                      own.full[k]);
        }
        if (lists_) storage_of(s).add_inputs();
        add_order(s);
    }
    void add_inputs_of(const operation& op) {
        const auto k = op.microbatch.position();
        add_inputs_of(op, tasks_of(op.stage, op.kind)[k]);
        if (!lists_ || !is_gradient(op.kind)) return;
        for (const auto extra : stages_[op.stage].storage.extras_of(k))
            add_inputs_of(op, extra);
    }
    void add_inputs_of(const operation& op, task_index task) {
        const auto k = op.microbatch.position();
        for_each_dependency(*problem_, op, false, [&](const operation& before, duration delay) {
            add_precedence(tasks_of(before.stage, before.kind)[k], task, length(delay));
            const auto& from = stages_[before.stage];
            if (before.stage == op.stage || !is_gradient(before.kind) || from.full.empty()) return;
            model_.add_difference(from.weight[k], task, model_.tasks[from.weight[k]].length + length(delay),
                                  from.full[k]);
        });
    }
    [[nodiscard]] const std::vector<task_index>& tasks_of(stage s, operation_kind kind) const {
        const auto& own = stages_[s];
        switch (kind) {
        case operation_kind::forward: return own.forward;
        case operation_kind::backward_input:
        case operation_kind::backward: return own.gradient;
        case operation_kind::backward_weight: return own.weight;
        case operation_kind::offload: return own.offload;
        case operation_kind::reload: return own.reload;
        case operation_kind::recompute: break; // part of the storage options
        }
        return own.forward;
    }
    void add_order(stage s) {
        const auto& own = stages_[s];
        const auto chain = [&](const std::vector<task_index>& tasks) {
            for (size k = 1; k < tasks.size(); ++k)
                add_precedence(tasks[k - 1], tasks[k]);
        };
        if (sorted() || s.position() == 0) chain(own.forward);
        if (!sorted()) return;
        chain(own.gradient);
        if (own.full.empty()) chain(own.weight);
        chain(own.offload);
        chain(own.reload);
    }

    // Machines.

    void add_machines(order_literals& known) {
        const auto& p = *problem_;
        std::vector<std::vector<task_index>> compute(p.graph.ranks());
        std::vector<std::vector<task_index>> lanes(4 * p.graph.ranks());
        const auto append = [](std::vector<task_index>& to, const std::vector<task_index>& tasks) {
            to.insert(to.end(), tasks.begin(), tasks.end());
        };
        for (const stage s : p.graph.all_stages()) {
            const auto& own = stages_[s];
            const auto r = p.rank_of(s).position();
            const auto& stored = own.storage;
            for (const auto* tasks : {&own.forward, &own.gradient, &own.weight, &stored.extra, &stored.recompute})
                append(compute[r], *tasks);
            for (const bool inward : {false, true})
                for (const auto* tasks :
                     {inward ? &own.reload : &own.offload, inward ? &stored.reload : &stored.offload}) {
                    append(lanes[copy_engine_of(p.transfer, p.rank_of(s), inward)], *tasks);
                    append(lanes[2 * p.graph.ranks() + host_channel_of(p.transfer, p.rank_of(s), inward)], *tasks);
                }
        }
        for (auto& tasks : compute)
            known.add_machine(std::move(tasks));
        for (auto& lane : lanes)
            std::sort(lane.begin(), lane.end());
        for (size i = 0; i < lanes.size(); ++i)
            if (!is_contained(lanes, i)) known.add_machine(lanes[i]);
    }
    static bool is_contained(const std::vector<std::vector<task_index>>& lanes, size i) {
        for (size j = 0; j < lanes.size(); ++j)
            if (j != i && (lanes[j].size() > lanes[i].size() || (j < i && lanes[j].size() == lanes[i].size())) &&
                std::includes(lanes[j].begin(), lanes[j].end(), lanes[i].begin(), lanes[i].end()))
                return true;
        return false;
    }
    /// Requires that weight gradients run in the order of their input gradients.
    void align_weights(stage s, order_literals& known) {
        const auto& own = stages_[s];
        if (sorted() || own.weight.empty() || !own.full.empty()) return;
        for (size a = 0; a < count(); ++a)
            for (size b = 0; b < count(); ++b)
                if (a != b)
                    model_.add_clause({!known.runs_before(own.gradient[a], own.gradient[b]),
                                       known.runs_before(own.weight[a], own.weight[b])});
    }

    // Pooled stashes.

    /// Requires that no more stashes are taken than are available.
    void add_pool(stage s, order_literals& known) {
        const auto& own = stages_[s];
        if (own.offload.empty()) return;
        for (const auto* takers : {&own.gradient, &own.offload})
            for (const auto taker : *takers) {
                knapsack_builder at_hand{model_, known, taker};
                at_hand.capacity = -1;
                for (const auto* others : {&own.gradient, &own.offload})
                    for (const auto other : *others)
                        if (other != taker) at_hand.taken(other, 1);
                for (const auto* sources : {&own.forward, &own.reload})
                    for (const auto source : *sources)
                        at_hand.given(source, 1);
                at_hand.finish(model_.tasks[taker].presence);
            }
    }
    /// Requires that gradient k uses the stash of forward k: "gradient k starts before pair i has ended" implies that
    /// forward k + j − i + 1 has ended before pair j starts. In `pooled` the alternative is that gradient k is a full
    /// pass after that forward (see above).
    void add_fifo_clauses(stage s, order_literals& known) {
        const auto& own = stages_[s];
        for (size i = 0; i < own.offload.size(); ++i)
            for (size j = i; j < own.offload.size(); ++j)
                for (size k = 0; k < count(); ++k) {
                    const auto needed = k + j - i + 1;
                    std::vector<literal> c{!model_.tasks[own.offload[j]].presence,
                                           known.ends_before(own.reload[i], own.gradient[k])};
                    if (needed < count()) {
                        c.push_back(known.ends_before(own.forward[needed], own.offload[j]));
                        if (form_ == overtaking::pooled)
                            c.push_back(known.separated(own.forward[needed], own.gradient[k],
                                                        known.paths()(own.forward[needed], own.gradient[needed])));
                    }
                    model_.add_clause(std::move(c));
                }
    }

    // The objective `span`: per rank, a task of length 0 that is no later than any other on it, and no earlier than T
    // before the last end.

    void add_spans(order_literals& known) {
        for (const rank r : problem_->graph.all_ranks()) {
            std::vector<task_index> own;
            for (const stage s : problem_->graph.all_stages())
                if (problem_->rank_of(s) == r)
                    for (const auto* tasks : {&stages_[s].forward, &stages_[s].gradient, &stages_[s].weight})
                        own.insert(own.end(), tasks->begin(), tasks->end());
            add_span(own, known);
        }
    }
    void add_span(const std::vector<task_index>& own, const order_literals& known) {
        const auto begin = model_.add_task(0);
        begins_.push_back(begin);
        for (const auto t : own) {
            const auto follows = [&](task_index x) { return x != t && known.paths()(x, t) >= 0; };
            if (std::none_of(own.begin(), own.end(), follows)) model_.add_difference(begin, t, 0);
            const auto length_of_t = model_.tasks[t].length;
            const auto ends_later = [&](task_index x) {
                return x != t && known.paths()(t, x) + model_.tasks[x].length >= length_of_t;
            };
            if (std::any_of(own.begin(), own.end(), ends_later)) continue;
            span_ends_.push_back({model_.differences.size(), length_of_t});
            model_.add_difference(t, begin, length_of_t - most_time);
        }
    }

    static constexpr ticks most_time = ticks{1} << 55;

    const problem* problem_;
    overtaking form_;
    grid time_;
    grid memory_;
    /// Whether some stage has a list of storage options; then all stages are modelled by lists.
    bool lists_;
    per_stage<stage_tasks> stages_;
    model model_;
    std::vector<span_end> span_ends_;
    std::vector<task_index> begins_;
    bool offloads_ = false;
};

} // namespace optpipe::cp
