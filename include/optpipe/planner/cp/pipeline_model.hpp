#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/bounding_form.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/knapsack_builder.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/microbatch_order.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_memory.hpp"
#include "optpipe/planner/cp/pipeline_storage.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/planner/cp/solver.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// A problem as a model of tasks, differences, choices and knapsack constraints, for any target objective.
///
/// *Symmetry.* Take a valid schedule without transfers. On each stage, assign the k-th forward, the k-th gradient and
/// the k-th weight gradient to microbatch k. The k-th forward of a stage still ends a hop before the next stage's k-th
/// forward starts. If x_i ≤ y_i for all i, the sorted lists also satisfy these inequalities. After sorting, all inputs
/// still end in time, and each memory holds the same amounts at the same times. Therefore some optimal schedule runs
/// the operations of each kind in the order of microbatches.
///
/// Transfers can't always be sorted: a transfer belongs to one forward and one gradient. On a rank with room for one
/// stash, F0 OFFLOAD0 F1 I1 RELOAD0 I0 can't be sorted. In the form `pooled`, transfers belong to no microbatch, and F,
/// I and W of each stage are sorted. `pooled` requires only two things. At any time, gradients and offloads have taken
/// no more stashes than forwards and reloads have provided. At any time, no more stashes have been reloaded than
/// offloaded. Every valid schedule gives a solution of `pooled` with equal times. Targets that are infeasible for
/// `pooled` are infeasible for schedules. `pooled` requires that the options of a stage differ only in transfers
/// (`bounding_form`). If options differed in recomputation, a gradient's work would depend on the stash that it uses.
///
/// In the form `forbidden`, operations are sorted, and the k-th gradient uses the stash of the k-th forward. In the
/// form `allowed`, each gradient may use the stash of any forward. The form `allowed` is exact (see `stage_storage`).
/// If no stage has several options, all three forms are the same sorted model, which is exact.
///
/// A further constraint of `pooled` follows from two transfer pairs i ≤ j of a stage. Let n = j − i + 1 be the number
/// of pairs from i to j. Let α be the number of forwards that have ended before pair j starts. The stashes of the pairs
/// i … j are from the first α forwards. The gradients of these stashes start after pair i has ended. Let b be the
/// number of gradients that start before pair i has ended. At most α − n of these b gradients belong to the first α
/// forwards. At least b − α + n of the b gradients belong to later forwards. The last of the later forwards is at least
/// the (b + n)-th. If b + n > α, a microbatch must pass down and up the whole pipeline between the (b + n)-th forward
/// and the b-th gradient.
///
/// With split backwards, I followed by W is as good as a full backward, unless I needs more memory than the stash.
///
/// *Graphs and microbatches that differ.* Only interchangeable microbatches are sorted (`microbatch_order`), either
/// without choices between storage options or in the form `forbidden`. If tasks aren't sorted, task k belongs to
/// microbatch k. `allowed` needs no assignment between stages for problems that aren't plain. `pooled` doesn't exist
/// for problems that aren't plain.
class pipeline_model {
public:
    /// Contract: if `how` is `pooled`, the problem's `bounding_form` is `pooled`.
    pipeline_model(const problem& p, overtaking how)
        : problem_{&p}, form_{how}, needed_{p}, order_{p, needed_, how}, time_{time_grid(p)}, memory_{memory_grid(p)},
          stages_(p.graph.stages()) {
        OPTPIPE_EXPECT(how != overtaking::pooled || bounding_form(p) == how,
                       "pooled: options must differ only in transfers");
        for (const stage s : p.graph.all_stages())
            add_tasks(s);
        for (const stage s : p.graph.all_stages())
            add_inputs(s);
        if (!order_.is_sorted()) sort_names();
        order_literals known{model_};
        add_machines(known);
        add_group_orders(known);
        for (const stage s : p.graph.all_stages()) {
            storage_of(s).add_orders(known);
            if (order_.has_permutations() && s.position() > 0) storage_of(s).add_links(stages_[s.previous()], known);
            add_pool(s, known);
            for (const auto& pairs : stages_[s].storage.pairs)
                add_fifo_clauses(s, pairs, known);
        }
        for (const rank r : p.graph.all_ranks())
            pipeline_memory{p, r, memory_, stages_, known, model_}.add_knapsacks();
        if (p.objective == objective_kind::span) add_spans(known);
    }

    [[nodiscard]] const model& tasks() const { return model_; }
    [[nodiscard]] const problem& source() const { return *problem_; }
    [[nodiscard]] overtaking form() const { return form_; }
    [[nodiscard]] const needed_options& needed() const { return needed_; }
    [[nodiscard]] const microbatch_order& order() const { return order_; }
    [[nodiscard]] const grid& time() const { return time_; }
    [[nodiscard]] const per_stage<stage_tasks>& stages() const { return stages_; }
    /// For the objective `span`, one task per rank that starts no later than all other tasks of the rank.
    [[nodiscard]] const std::vector<task_index>& begins() const { return begins_; }
    /// Whether any stage has several storage options.
    [[nodiscard]] bool has_choices() const { return has_choices_; }

    /// Adds the constraint that the objective is at most `most`.
    void limit(solver& search, ticks most) const {
        const bool span = problem_->objective == objective_kind::span;
        const auto end = span ? last_end(most) : most;
        for (task_index t = 0; t < model_.tasks.size(); ++t)
            search.at_most(t, end - model_.tasks[t].length);
        if (!span) return;
        // In a plain problem, times are counted from the start of the first forward.
        if (is_plain(*problem_)) search.at_most(stages_[stage{0}].forward[0], 0);
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
    [[nodiscard]] stage_storage storage_of(stage s) { return {*problem_, s, form_, order_, time_, stages_[s], model_}; }
    /// If some schedule engages each rank for at most `most`, some such schedule ends by the returned time T. In plain
    /// problems, T is 2 · `most`: every rank begins before the first rank's first gradient, which starts by `most`. If
    /// the problem isn't plain, T is the sum of all durations and delays. With the earliest possible starts, each operation
    /// starts at the end of a path that visits no operation twice. The limit `most` only shortens paths.
    [[nodiscard]] ticks last_end(ticks most) const {
        if (is_plain(*problem_)) return 2 * most;
        ticks all = 0;
        for (const auto& t : model_.tasks)
            all += t.length;
        return all + longest_delays();
    }
    /// The sum, over all tasks, of the longest delay after the task.
    [[nodiscard]] ticks longest_delays() const {
        std::vector<ticks> delays(model_.tasks.size(), 0);
        for (const auto& d : model_.differences)
            delays[d.from] = std::max(delays[d.from], d.gap - model_.tasks[d.from].length);
        return std::accumulate(delays.begin(), delays.end(), ticks{0});
    }

    // Tasks.

    void add_tasks(stage s) {
        auto& own = stages_[s];
        const auto gradients = problem_->costs[s].gradients;
        const bool split = problem_->split_backward;
        for (size k = 0; k < count(); ++k) {
            const auto c = problem_->cost(s, microbatch{k});
            own.forward.push_back(model_.add_task(length(c.forward)));
            if (gradients == gradient_kind::none) continue;
            own.gradient.push_back(model_.add_task(length(c.backward_input) + (split ? 0 : length(c.backward_weight))));
            if (split && gradients == gradient_kind::full)
                own.weight.push_back(model_.add_task(length(c.backward_weight)));
        }
        storage_of(s).add_tasks(needed_);
        has_choices_ = has_choices_ || own.storage.options.size() > 1;
    }

    // Differences.

    void add_precedence(task_index from, task_index to, ticks hop = 0) {
        model_.add_difference(from, to, model_.tasks[from].length + hop);
    }
    void add_inputs(stage s) {
        const auto& own = stages_[s];
        for (size k = 0; k < count(); ++k) {
            for (const auto kind :
                 {operation_kind::forward, operation_kind::backward_input, operation_kind::backward_weight})
                if (!tasks_of(s, kind).empty()) add_inputs_of({s, kind, microbatch{k}});
            if (!own.full.empty())
                model_.add_difference(own.weight[k], own.gradient[k], -model_.tasks[own.gradient[k]].length,
                                      own.full[k]);
        }
        storage_of(s).add_inputs();
        add_order(s);
    }
    void add_inputs_of(const operation& op) {
        const auto k = op.microbatch.position();
        add_inputs_of(op, tasks_of(op.stage, op.kind)[k]);
        if (!is_gradient(op.kind)) return;
        for (const auto extra : stages_[op.stage].storage.extras_of(k))
            add_inputs_of(op, extra);
    }
    void add_inputs_of(const operation& op, task_index task) {
        for_each_dependency(*problem_, op, stash_way{}, [&](const operation& before, duration delay) {
            const auto k = before.microbatch.position();
            add_precedence(tasks_of(before.stage, before.kind)[k], task, length(delay));
            const auto& from = stages_[before.stage];
            if (before.stage == op.stage || !is_gradient(before.kind) || from.full.empty()) return;
            model_.add_difference(from.weight[k], task, model_.tasks[from.weight[k]].length + length(delay),
                                  from.full[k]);
        });
    }
    [[nodiscard]] const std::vector<task_index>& tasks_of(stage s, operation_kind kind) const {
        const auto& own = stages_[s];
        if (kind == operation_kind::forward) return own.forward;
        return kind == operation_kind::backward_weight ? own.weight : own.gradient;
    }
    void add_order(stage s) {
        if (!order_.is_sorted()) return;
        const auto& own = stages_[s];
        for (const auto* tasks : {&own.forward, &own.gradient, &own.weight}) {
            if (tasks->empty() || (tasks == &own.weight && !own.full.empty())) continue;
            for (const auto& list : order_.lists())
                sort(list, *tasks);
        }
    }
    void sort(const std::vector<size>& list, const std::vector<task_index>& tasks) {
        for (size i = 1; i < list.size(); ++i)
            add_precedence(tasks[list[i - 1]], tasks[list[i]]);
    }
    /// Sorts the first forwards of interchangeable sequences on stage 0.
    void sort_names() {
        for (const auto& list : order_.lists())
            if (!problem_->microbatches.slice_before(microbatch{list.front()})) sort(list, stages_[stage{0}].forward);
    }
    /// Requires that the stages of a group run their forwards in the same order of microbatches.
    void add_group_orders(order_literals& known) {
        for (const stage s : problem_->graph.all_stages()) {
            std::optional<stage> next;
            problem_->groups.for_each_member(s, [&](stage member, duration) {
                if (s < member && !next) next = member;
            });
            if (next) add_same_order(stages_[s].forward, stages_[*next].forward, known);
        }
    }
    void add_same_order(const std::vector<task_index>& a, const std::vector<task_index>& b, order_literals& known) {
        for (size k = 0; k < count(); ++k)
            for (size later = k + 1; later < count(); ++later) {
                const auto here = known.runs_before(a[k], a[later]);
                const auto there = known.runs_before(b[k], b[later]);
                model_.add_clause({!here, there});
                model_.add_clause({here, !there});
            }
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
                for (const auto lane : {copy_engine_of(p.transfer, p.rank_of(s), inward),
                                        2 * p.graph.ranks() + host_channel_of(p.transfer, p.rank_of(s), inward)})
                    append(lanes[lane], inward ? stored.reload : stored.offload);
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

    // Pooled stashes.

    /// Requires that stashes are only taken while at least one is available.
    void add_pool(stage s, order_literals& known) {
        const auto& own = stages_[s];
        if (own.storage.pairs.empty()) return;
        for (const auto* takers : {&own.gradient, &own.storage.offload})
            for (const auto taker : *takers) {
                knapsack_builder at_hand{model_, known, taker};
                at_hand.capacity = -1;
                for (const auto* others : {&own.gradient, &own.storage.offload})
                    for (const auto other : *others)
                        if (other != taker) at_hand.taken(other, 1);
                for (const auto* sources : {&own.forward, &own.storage.reload})
                    for (const auto source : *sources)
                        at_hand.given(source, 1);
                at_hand.finish(model_.tasks[taker].presence);
            }
    }
    /// Adds a clause for each gradient k and all transfer pairs i ≤ j. Let gradient k start before pair i has ended.
    /// Forward k + j − i + 1 then ends before pair j starts, or a full pass lies between this forward and gradient k
    /// (see `pipeline_model`).
    void add_fifo_clauses(stage s, const transfer_pairs& pairs, order_literals& known) {
        const auto& own = stages_[s];
        for (size i = 0; i < count(); ++i)
            for (size j = i; j < count(); ++j)
                for (size k = 0; k < count(); ++k) {
                    const auto needed = k + j - i + 1;
                    std::vector<literal> c{!model_.tasks[pairs.offload[j]].presence,
                                           known.ends_before(pairs.reload[i], own.gradient[k])};
                    if (needed < count()) {
                        c.push_back(known.ends_before(own.forward[needed], pairs.offload[j]));
                        c.push_back(known.separated(own.forward[needed], own.gradient[k],
                                                    known.paths()(own.forward[needed], own.gradient[needed])));
                    }
                    model_.add_clause(std::move(c));
                }
    }

    // Adds the objective `span`. Each rank gets a task of length 0 that starts no later than any other task of the
    // rank. The span of a rank is the time from this task's start to the rank's last end. The span is at most the limit
    // of the objective.

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
    needed_options needed_;
    microbatch_order order_;
    grid time_;
    grid memory_;
    per_stage<stage_tasks> stages_;
    model model_;
    std::vector<span_end> span_ends_;
    std::vector<task_index> begins_;
    bool has_choices_ = false;
};

} // namespace optpipe::cp
