#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The longest paths of a graph with any microbatches, indexed by stage and microbatch. A head leads from the start of
/// the step to the start of a forward or gradient. A tail leads from the end of the forward or gradient to the end of
/// the step. The paths ignore lanes and memory.
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
    /// The least duration of an operation over all storage options.
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
    /// Returns a forward unchanged, and replaces any backward by the `gradient` of its cell. Dependencies always name
    /// I, even for a stage that runs B.
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

} // namespace optpipe::detail
