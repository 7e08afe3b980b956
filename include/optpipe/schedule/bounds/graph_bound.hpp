#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/one_machine.hpp"
#include "optpipe/schedule/bounds/pair_savings.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {
namespace detail {

/// The longest paths of a graph with any microbatches, by stage and microbatch: from the beginning of the step to the
/// start of a forward or gradient (head), and from its end to the end of the step (tail). Lanes and memory don't count.
template <pipeline_graph Graph> class graph_paths {
public:
    explicit graph_paths(const basic_problem<Graph>& p)
        : p_{&p}, cell_{p.graph}, forward_head_(cell_.size()), forward_tail_(forward_head_),
          gradient_head_(forward_head_), gradient_tail_(forward_head_) {
        for (std::size_t i = 0; i < cell_.size(); ++i)
            find_head(forward(cell_.stage_of(i), cell_.microbatch_of(i)));
        for (std::size_t i = cell_.size(); i-- > 0;)
            find_head(gradient(cell_.stage_of(i), cell_.microbatch_of(i)));
        for (std::size_t i = 0; i < cell_.size(); ++i)
            find_tail(gradient(cell_.stage_of(i), cell_.microbatch_of(i)));
        for (std::size_t i = cell_.size(); i-- > 0;)
            find_tail(forward(cell_.stage_of(i), cell_.microbatch_of(i)));
    }

    [[nodiscard]] duration head(const operation& op) const { return heads(op)[cell_(op)]; }
    [[nodiscard]] duration tail(const operation& op) const { return tails(op)[cell_(op)]; }
    /// I if the backward of the stage may be split, else B.
    [[nodiscard]] operation gradient(stage s, microbatch m) const {
        return may_split(*p_, s) ? backward_input(s, m) : backward(s, m);
    }
    [[nodiscard]] bool has_gradient(stage s) const { return p_->costs[s].gradients != gradient_kind::none; }
    /// The least duration of an operation, whatever the storage option.
    [[nodiscard]] duration length(const operation& op) const {
        const auto c = p_->cost(op.stage, op.microbatch);
        if (op.kind == operation_kind::forward) return c.forward;
        return op.kind == operation_kind::backward_input ? c.backward_input : c.backward();
    }

private:
    const std::vector<duration>& heads(const operation& op) const {
        return op.kind == operation_kind::forward ? forward_head_ : gradient_head_;
    }
    const std::vector<duration>& tails(const operation& op) const {
        return op.kind == operation_kind::forward ? forward_tail_ : gradient_tail_;
    }
    /// The forward or gradient of the same cell for which paths are stored: dependencies name I even if the backward is
    /// a B.
    operation known(const operation& op) const {
        return op.kind == operation_kind::forward ? op : gradient(op.stage, op.microbatch);
    }

    void find_head(const operation& op) {
        if (op.kind != operation_kind::forward && !has_gradient(op.stage)) return;
        duration latest{};
        for_each_dependency(*p_, op, {}, [&](const operation& before, duration delay) {
            const auto input = known(before);
            latest = std::max(latest, head(input) + length(input) + delay);
        });
        (op.kind == operation_kind::forward ? forward_head_ : gradient_head_)[cell_(op)] = latest;
    }
    void find_tail(const operation& op) {
        const stage s = op.stage;
        const microbatch m = op.microbatch;
        const bool is_forward = op.kind == operation_kind::forward;
        if (!is_forward && !has_gradient(s)) return;
        duration longest{};
        if (is_forward && has_gradient(s)) longest = length(gradient(s, m)) + tail(gradient(s, m));
        if (op.kind == operation_kind::backward_input) longest = p_->cost(s, m).backward_weight;
        for_each_consumer(*p_, op, [&](const operation& after, duration delay) {
            const auto next = known(after);
            longest = std::max(longest, delay + length(next) + tail(next));
        });
        (is_forward ? forward_tail_ : gradient_tail_)[cell_(op)] = longest;
    }

    const basic_problem<Graph>* p_;
    cell_numbering cell_;
    std::vector<duration> forward_head_;
    std::vector<duration> forward_tail_;
    std::vector<duration> gradient_head_;
    std::vector<duration> gradient_tail_;
};

} // namespace detail

namespace detail {

/// The operations of a rank, as jobs for one machine.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<machine_job> jobs_of_rank(const basic_problem<Graph>& p, rank r,
                                                    const graph_paths<Graph>& paths,
                                                    const pair_savings<Graph>& savings) {
    std::vector<machine_job> jobs;
    // A pair takes less time than its parts one after the other. Half of the saving shortens the forward, and half the
    // backward: I first, then W.
    const auto add = [&](const operation& op, duration saved) {
        jobs.push_back({paths.head(op), paths.length(op) - saved, paths.tail(op)});
    };
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        for (const microbatch m : p.graph.all_microbatches()) {
            add(forward(s, m), 0.5 * savings.of_forward(s, m));
            if (!paths.has_gradient(s)) continue;
            const auto back = paths.gradient(s, m);
            const auto half = 0.5 * savings.of_backward(s, m);
            const auto of_gradient = std::min(half, paths.length(back));
            add(back, of_gradient);
            if (back.kind == operation_kind::backward_input && p.costs[s].gradients == gradient_kind::full)
                jobs.push_back(
                    {paths.head(back) + paths.length(back), p.cost(s, m).backward_weight - (half - of_gradient), {}});
        }
    }
    return jobs;
}

/// The least head of a rank's jobs, plus its work that pairs can't save, plus the least tail of its jobs.
[[nodiscard]] inline duration work_with_ends(const std::vector<machine_job>& jobs, duration work) {
    auto head = duration::unlimited();
    auto tail = duration::unlimited();
    for (const auto& each : jobs) {
        head = std::min(head, each.head);
        tail = std::min(tail, each.tail);
    }
    return jobs.empty() ? work : head + work + tail;
}

} // namespace detail

/// A lower bound on the objective of every valid schedule, for any graph, microbatches and pairs: all work of one rank,
/// with the longest paths before and after each operation (Carlier's bound for one machine), minus the most time that
/// its pairs can save. For `span`, only the work counts. Memory doesn't count. O(n log n) for n operations.
template <pipeline_graph Graph> [[nodiscard]] duration graph_bound(const basic_problem<Graph>& p) {
    duration best{};
    const detail::pair_savings<Graph> savings{p};
    const auto work_of = [&](rank r) { return p.load(r) - savings.of_rank(r); };
    for (const rank r : p.graph.all_ranks())
        best = std::max(best, work_of(r));
    if (p.objective == objective_kind::span) return best;
    const detail::graph_paths<Graph> paths{p};
    for (const rank r : p.graph.all_ranks()) {
        auto jobs = detail::jobs_of_rank(p, r, paths, savings);
        if (!p.overlaps.empty()) best = std::max(best, detail::work_with_ends(jobs, work_of(r)));
        best = std::max(best, one_machine_bound(std::move(jobs)));
    }
    return best;
}

} // namespace optpipe
