#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/exact/model.hpp"
#include "optpipe/planner/exact/pipeline_memory.hpp"
#include "optpipe/planner/exact/pipeline_tasks.hpp"
#include "optpipe/planner/exact/relations.hpp"
#include "optpipe/planner/exact/scale.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::exact {

/// A problem as tasks, differences, choices and budgets, for any target objective.
///
/// *Symmetry.* Take a valid schedule without transfers and give, on each stage, the k-th forward, the k-th gradient and
/// the k-th weight gradient to microbatch k. Sorted, the k-th forward of a stage still ends a hop before the k-th of
/// the next starts (if each of n pairs is in order, so are the pairs of the sorted), and so for all other inputs; each
/// memory sees the same amounts at the same times. So some optimal schedule runs every kind in the order of
/// microbatches.
///
/// With transfers this fails: a transfer belongs to one forward and one gradient. F0 OFFLOAD0 F1 I1 RELOAD0 I0 on a
/// rank that holds one stash has no equal in which I0 comes before I1. But the three sequences may still be sorted if
/// it is forgotten whose stash travels: `pooled` keeps only that at any time no more stashes are taken (by a gradient
/// or an offload) than are at hand (from a forward or a reload), and no more reloaded than are away. Every valid
/// schedule gives a solution of it with the same times, so what is impossible there is impossible.
///
/// `in_turn` adds that the k-th gradient uses the stash of the k-th forward. The z-th stash can make the i-th trip if
/// forward z ends before that trip begins and gradient z starts after it ended, so z must lie in [β_i + 1, α_i], where
/// α_i forwards end before trip i begins and β_i gradients start before it ended. Both ends grow with i, so all trips
/// have stashes of their own if and only if α_j − β_i ≥ j − i + 1 for all i ≤ j (Hall). Every solution of it is a
/// valid schedule, and every valid schedule in which microbatches don't overtake each other on a stage is one.
///
/// In `pooled`, let α_j forwards have ended before trip j ≥ i begins and n = j − i + 1. The stashes of the trips i … j
/// are from these forwards, and their gradients start when trip i has ended. So of the first b gradients, if they start
/// before that, at most α_j − n belong to the first α_j forwards, and b − α_j + n to later ones, of which the last
/// isn't before the (b + n)-th. If that is a later one, b + n > α_j, then between it and the b-th gradient lies the
/// whole way of a microbatch down and up the pipeline.
///
/// `named` leaves the order of microbatches open, but for the forwards of stage 0, which renames them: it is exact.
/// Where nothing may travel all three are the sorted model, and exact.
///
/// A full backward where the split is allowed is never better than I and at once W, but where I adds to the memory.
class pipeline_model {
public:
    pipeline_model(const problem& p, travel_form how)
        : problem_{&p}, form_{how}, time_{time_grid(p)}, memory_{memory_grid(p)}, stages_(p.graph.stages()) {
        for (const stage s : p.graph.all_stages())
            add_tasks(s);
        for (const stage s : p.graph.all_stages())
            add_inputs(s);
        relations known{model_};
        add_machines(known);
        for (const stage s : p.graph.all_stages()) {
            name_weights(s, known);
            if (form_ != travel_form::named) add_pool(s, known);
            if (form_ != travel_form::named) add_turns(s, known);
        }
        for (const rank r : p.graph.all_ranks())
            add_memory_budgets(p, r, memory_, stages_, known, model_);
        if (p.objective == objective_kind::span) add_spans(known);
    }

    [[nodiscard]] const model& tasks() const { return model_; }
    [[nodiscard]] const problem& source() const { return *problem_; }
    [[nodiscard]] travel_form form() const { return form_; }
    [[nodiscard]] const grid& time() const { return time_; }
    [[nodiscard]] const per_stage<stage_tasks>& stages() const { return stages_; }
    /// For `span`, per rank, a task that begins no later than all others.
    [[nodiscard]] const std::vector<task_index>& begins() const { return begins_; }
    /// Whether any stash may travel.
    [[nodiscard]] bool travels() const { return travels_; }

    /// From now on the objective is at most `most`.
    template <class Solver> void limit(Solver& solver, ticks most) const {
        const bool span = problem_->objective == objective_kind::span;
        for (task_index t = 0; t < model_.tasks.size(); ++t)
            solver.at_most(t, (span ? 2 * most : most) - model_.tasks[t].length);
        if (!span) return;
        // All starts count from that of the first forward.
        solver.at_most(stages_[stage{0}].forward[0], 0);
        for (const auto& e : span_ends_)
            solver.widen(e.difference, e.length - most);
    }

private:
    struct span_end {
        std::size_t difference;
        ticks length;
    };
    using size = std::size_t;

    [[nodiscard]] size count() const { return problem_->graph.microbatches(); }
    [[nodiscard]] ticks length(duration d) const { return time_.nearest(d.value()); }
    [[nodiscard]] bool sorted() const { return form_ != travel_form::named; }

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
        if (problem_->split_backward && limited && c.weight_stash > c.activation)
            for (size k = 0; k < count(); ++k)
                own.full.push_back(model_.add_variable());
        if (limited && c.can_offload()) add_trips(s);
    }
    /// Whether all stashes of its rank together are too many.
    [[nodiscard]] bool is_tight(stage s) const {
        memory_size all{};
        for (const stage other : problem_->graph.all_stages())
            if (problem_->rank_of(other) == problem_->rank_of(s))
                all += static_cast<double>(count()) *
                       std::max(problem_->costs[other].activation, problem_->costs[other].weight_stash);
        return all > problem_->memory_limit[problem_->rank_of(s)];
    }
    void add_trips(stage s) {
        const auto& c = problem_->costs[s];
        if (c.activation <= memory_size{}) return;
        travels_ = true;
        auto& own = stages_[s];
        literal before = always;
        for (size k = 0; k < count(); ++k) {
            const auto present = model_.add_variable();
            if (sorted() && k > 0) model_.add_implication(present, before);
            before = present;
            own.offload.push_back(model_.add_task(length(c.transfer->offload), present));
            own.reload.push_back(model_.add_task(length(c.transfer->reload), present));
        }
    }

    // Differences.

    void follow(task_index from, task_index to, ticks hop = 0) {
        model_.add_difference(from, to, model_.tasks[from].length + hop);
    }
    void add_inputs(stage s) {
        const auto& p = *problem_;
        const auto& own = stages_[s];
        for (size k = 0; k < count(); ++k) {
            follow(own.forward[k], own.gradient[k]);
            if (!own.weight.empty()) follow(own.gradient[k], own.weight[k]);
            if (!p.is_last(s)) {
                const auto& next = stages_[s.next()];
                follow(own.forward[k], next.forward[k], length(p.hop(s, s.next())));
                const auto back = length(p.hop(s.next(), s));
                follow(next.gradient[k], own.gradient[k], back);
                if (!next.full.empty())
                    model_.add_difference(next.weight[k], own.gradient[k], model_.tasks[next.weight[k]].length + back,
                                          next.full[k]);
            }
            if (!own.full.empty())
                model_.add_difference(own.weight[k], own.gradient[k], -model_.tasks[own.gradient[k]].length,
                                      own.full[k]);
            if (!own.offload.empty()) add_trip_inputs(own, k);
        }
        add_order(s);
    }
    void add_trip_inputs(const stage_tasks& own, size k) {
        follow(own.forward[k], own.offload[k]);
        follow(own.offload[k], own.reload[k]);
        if (!sorted()) follow(own.reload[k], own.gradient[k]);
    }
    void add_order(stage s) {
        const auto& own = stages_[s];
        const auto chain = [&](const std::vector<task_index>& tasks) {
            for (size k = 1; k < tasks.size(); ++k)
                follow(tasks[k - 1], tasks[k]);
        };
        if (sorted() || s.position() == 0) chain(own.forward);
        if (!sorted()) return;
        chain(own.gradient);
        if (own.full.empty()) chain(own.weight);
        chain(own.offload);
        chain(own.reload);
    }

    // Machines.

    void add_machines(relations& known) {
        const auto& p = *problem_;
        std::vector<std::vector<task_index>> compute(p.graph.ranks());
        std::vector<std::vector<task_index>> lanes(4 * p.graph.ranks());
        const auto append = [](std::vector<task_index>& to, const std::vector<task_index>& tasks) {
            to.insert(to.end(), tasks.begin(), tasks.end());
        };
        for (const stage s : p.graph.all_stages()) {
            const auto& own = stages_[s];
            const auto r = p.rank_of(s).position();
            for (const auto* tasks : {&own.forward, &own.gradient, &own.weight})
                append(compute[r], *tasks);
            const auto link = 2 * (p.graph.ranks() + p.transfer.link[p.rank_of(s)]);
            append(lanes[2 * r], own.offload);
            append(lanes[2 * r + (p.transfer.engines == 2 ? 1 : 0)], own.reload);
            append(lanes[link], own.offload);
            append(lanes[link + (p.transfer.duplex == duplex_kind::full ? 1 : 0)], own.reload);
        }
        for (auto& tasks : compute)
            known.add_machine(std::move(tasks));
        for (auto& lane : lanes)
            std::sort(lane.begin(), lane.end());
        for (size i = 0; i < lanes.size(); ++i)
            if (!is_part(lanes, i)) known.add_machine(lanes[i]);
    }
    static bool is_part(const std::vector<std::vector<task_index>>& lanes, size i) {
        for (size j = 0; j < lanes.size(); ++j)
            if (j != i && (lanes[j].size() > lanes[i].size() || (j < i && lanes[j].size() == lanes[i].size())) &&
                std::includes(lanes[j].begin(), lanes[j].end(), lanes[i].begin(), lanes[i].end()))
                return true;
        return false;
    }
    /// Weight gradients run in the order of their input gradients.
    void name_weights(stage s, relations& known) {
        const auto& own = stages_[s];
        if (sorted() || own.weight.empty() || !own.full.empty()) return;
        for (size a = 0; a < count(); ++a)
            for (size b = 0; b < count(); ++b)
                if (a != b)
                    add_clause({!known.turn_of(own.gradient[a], own.gradient[b]),
                                known.turn_of(own.weight[a], own.weight[b])});
    }

    // Stashes without names.

    /// No more are taken than are at hand.
    void add_pool(stage s, relations& known) {
        const auto& own = stages_[s];
        if (own.offload.empty()) return;
        for (const auto* takers : {&own.gradient, &own.offload})
            for (const auto taker : *takers) {
                budget_maker at_hand{model_, known, taker};
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
    /// Gradient k uses the stash of forward k: "gradient k starts before trip i has ended" needs that forward
    /// k + j − i + 1 has ended before trip j begins. `pooled`: or that gradient k leaves that forward the time to be
    /// its own; see above.
    void add_turns(stage s, relations& known) {
        const auto& own = stages_[s];
        for (size i = 0; i < own.offload.size(); ++i)
            for (size j = i; j < own.offload.size(); ++j)
                for (size k = 0; k < count(); ++k) {
                    const auto needed = k + j - i + 1;
                    std::vector<literal> c{!model_.tasks[own.offload[j]].presence,
                                           known.ends_before(own.reload[i], own.gradient[k])};
                    if (needed < count()) {
                        c.push_back(known.ends_before(own.forward[needed], own.offload[j]));
                        if (form_ == travel_form::pooled)
                            c.push_back(known.apart(own.forward[needed], own.gradient[k],
                                                    known.ways()(own.forward[needed], own.gradient[needed])));
                    }
                    add_clause(std::move(c));
                }
    }
    void add_clause(std::vector<literal> c) {
        if (std::find(c.begin(), c.end(), always) != c.end()) return;
        std::erase(c, never);
        model_.clauses.push_back(std::move(c));
    }

    // The objective `span`: per rank a moment that is no later than anything on it, and no earlier than T before it
    // ends.

    void add_spans(relations& known) {
        for (const rank r : problem_->graph.all_ranks()) {
            std::vector<task_index> own;
            for (const stage s : problem_->graph.all_stages())
                if (problem_->rank_of(s) == r)
                    for (const auto* tasks : {&stages_[s].forward, &stages_[s].gradient, &stages_[s].weight})
                        own.insert(own.end(), tasks->begin(), tasks->end());
            add_span(own, known);
        }
    }
    void add_span(const std::vector<task_index>& own, const relations& known) {
        const auto begin = model_.add_task(0);
        begins_.push_back(begin);
        for (const auto t : own) {
            const auto follows = [&](task_index x) { return x != t && known.ways()(x, t) >= 0; };
            if (std::none_of(own.begin(), own.end(), follows)) model_.add_difference(begin, t, 0);
            const auto length_of_t = model_.tasks[t].length;
            const auto ends_later = [&](task_index x) {
                return x != t && known.ways()(t, x) + model_.tasks[x].length >= length_of_t;
            };
            if (std::any_of(own.begin(), own.end(), ends_later)) continue;
            span_ends_.push_back({model_.differences.size(), length_of_t});
            model_.add_difference(t, begin, length_of_t - most_time);
        }
    }

    static constexpr ticks most_time = ticks{1} << 55;

    const problem* problem_;
    travel_form form_;
    grid time_;
    grid memory_;
    per_stage<stage_tasks> stages_;
    model model_;
    std::vector<span_end> span_ends_;
    std::vector<task_index> begins_;
    bool travels_ = false;
};

} // namespace optpipe::exact
