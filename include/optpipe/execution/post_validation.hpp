#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/gradient_state.hpp"
#include "optpipe/execution/reversible_model.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::execution {

struct post_validation_options {
    /// Limit on the norm of the gradients of all stages together. Gradients with a larger norm are scaled down to the
    /// limit.
    double max_norm = std::numeric_limits<double>::infinity();
    /// The path of the gradient state: a permutation of all ranks, the same on every rank. If empty, the order is 0, 1,
    /// and so on. Ranks whose programs end late should come late in the order (`order_of_ends`). Results don't depend
    /// on the order.
    std::vector<rank> order{};
    /// Makes every rank wait for all gradients before its update. Useful for comparisons.
    bool barrier = false;
};

/// The ranks, sorted by the end of their last operation. The order is 0, 1, … for ZB-H2, and the reverse for 1F1B.
[[nodiscard]] std::vector<rank> order_of_ends(const schedule& s);

/// The path of the gradient state, as seen from one rank.
class state_route {
public:
    /// Throws `error` if the order isn't a permutation of all ranks. An empty order means 0, 1, and so on.
    state_route(std::vector<rank> order, rank self, std::size_t ranks);

    /// The previous rank in the order; empty for the first rank. `next` is the next rank; empty for the last rank.
    [[nodiscard]] std::optional<rank> previous() const { return previous_; }
    [[nodiscard]] std::optional<rank> next() const { return next_; }
    [[nodiscard]] rank last() const { return last_; }

private:
    std::optional<rank> previous_;
    std::optional<rank> next_;
    rank last_{};
};

/// The stages that a rank updates, in program order. Throws `error` if the program has no updates.
[[nodiscard]] std::vector<stage> updated_stages(const rank_program& p);

/// Post-validation of the optimizer step (Qi et al., 2024, Zero Bubble, section 4). This class wraps a reversible
/// model. Pass the wrapper to `runner` or `handover` in place of the model. Programs must have updates.
///
/// The gradients of all ranks determine whether a step is skipped, and how gradients are scaled. Waiting for all
/// gradients before the updates would be a barrier between steps. With post-validation, each rank adds its gradients to
/// the previous ranks' state. The rank makes its updates with the resulting state, and passes the state on. The last
/// rank knows all gradients, and tells all ranks the decision. Each rank reads this decision in the next step, before
/// its first backward. A rank whose updates followed a different decision revises the updates (`revise`). After the
/// revision, parameters are bitwise the same as with a barrier.
///
/// If any rank must revise its updates, the last rank's message tells all ranks. The step in which ranks learn of a
/// revision is void, because some forwards used wrong parameters. In a void step, all remaining computations do
/// nothing, but messages and copies go on. All ranks detect a void step by `was_void` and run it again:
///
///     for (std::size_t i = 0; i < steps; ++i)
///         do run.step(); while (model.was_void());
///     model.finish(executor);
///
/// A void step costs its messages, copies and first forwards. If most steps are void, the barrier is faster. The
/// reversible optimizer may need memory for a copy of parameters and moments.
///
/// In a void step, some forwards may receive the data of an earlier message. Models that use inputs as positions must
/// check the positions' range. Replicas of a pipeline (`reduce`) need bitwise equal gradients, to agree on void steps.
///
/// Steps can't be captured as graphs, because the host makes the decision.
///
/// Contract: all ranks run the same number of steps with the same options. Ranks of one process run on separate
/// threads. The running program has the same stages as the constructor's program. Model and channel outlive the
/// wrapper. The lanes of one rank make the calls that run tasks. All other calls come from the issuing thread, between
/// two steps.
template <class Model, peer_channel Channel> class post_validated {
public:
    /// Throws `error` if the program has no updates, or the order is no permutation of the ranks.
    post_validated(const rank_program& p, Model& model, Channel& channel, const post_validation_options& how = {})
        : model_{&model}, channel_{&channel}, route_{how.order, p.self, p.ranks}, max_norm_{how.max_norm},
          has_barrier_{how.barrier}, all_stages_{p.stages}, own_stages_{updated_stages(p)} {}

    template <class Lane> void forward(Lane& on, const forward_task& t) {
        if (!is_void_) model_->forward(on, t);
    }
    template <class Lane> void recompute(Lane& on, const recompute_task& t) requires has_recompute<Model, Lane> {
        if (!is_void_) model_->recompute(on, t);
    }
    template <class Lane> void backward_input(Lane& on, const backward_task& t) {
        validate(on);
        if (!is_void_) model_->backward_input(on, t);
    }
    template <class Lane> void backward_weight(Lane& on, const weight_task& t) {
        validate(on);
        if (!is_void_) model_->backward_weight(on, t);
    }
    template <class Lane> void backward(Lane& on, const backward_task& t) requires has_backward<Model, Lane> {
        validate(on);
        if (!is_void_) model_->backward(on, t);
    }
    template <class Lane>
    void overlap(Lane& on, const forward_task& f, const backward_task& b) requires has_overlap<Model, Lane> {
        validate(on);
        if (!is_void_) model_->overlap(on, f, b);
    }
    template <class Lane> void reduce(Lane& on, stage s) requires has_reduce<Model, Lane> {
        if (!is_void_) model_->reduce(on, s);
    }
    /// Postpones the updates to the step's last call, when all the rank's gradients are known.
    template <class Lane> void update(Lane& on, stage) {
        static_assert(check_reversible_model<Model, Lane>());
        if (++updates_ < own_stages_.size()) return;
        updates_ = 0;
        was_void_ = std::exchange(is_void_, false);
        if (was_void_)
            for (const stage s : own_stages_)
                model_->abandon(on, s);
        else
            update_all(on);
    }
    [[nodiscard]] std::span<std::byte> message(const task_label& what) requires has_message<Model> {
        return model_->message(what);
    }

    /// Whether the last step was void and must be run again. All ranks return the same value.
    [[nodiscard]] bool was_void() const { return was_void_; }
    /// Validates the updates of the last step. Must be called once, after the last step. Throws the exceptions of the
    /// executor's `finish`.
    template <executor Executor> void finish(Executor& on) {
        auto lane = on.open_lane(lane_kind::compute, 1);
        lane.launch({task_label::task_kind::update, optpipe::forward(own_stages_.front(), microbatch{0}), {}},
                    validation{this});
        on.finish();
        is_void_ = false; // `finish` runs no step that could be void
    }

private:
    struct validation {
        post_validated* of;
        template <class Lane> void operator()(Lane& on) const { of->validate(on); }
    };

    template <class Lane> void update_all(Lane& on) {
        auto known = route_.previous() ? receive(*route_.previous()) : gradient_state{all_stages_};
        for (const stage s : own_stages_)
            known.add(s, model_->gradient_squares(on, s));
        const auto by = known.decision(max_norm_);
        if (!has_barrier_) known.note(by);
        pass_on(known);
        made_ = has_barrier_ ? receive(route_.last()).decision(max_norm_) : by;
        for (const stage s : own_stages_)
            model_->update(on, s, *made_);
        if (has_barrier_) settle(on);
    }
    /// Revises the updates unless the final decision confirms them.
    template <class Lane> void validate(Lane& on) {
        if (!made_) return;
        const auto all = receive(route_.last());
        if (const auto right = all.decision(max_norm_); right != *made_)
            for (const stage s : own_stages_)
                model_->revise(on, s, right);
        is_void_ = !all.is_unanimous();
        settle(on);
    }
    template <class Lane> void settle(Lane& on) {
        for (const stage s : own_stages_)
            model_->settle(on, s);
        made_.reset();
    }

    [[nodiscard]] gradient_state receive(rank from) { return {all_stages_, channel_->receive(from)}; }
    void pass_on(const gradient_state& known) {
        const auto text = known.text();
        if (route_.next()) return channel_->send(*route_.next(), text);
        for (const rank to : index_range<rank>{channel_->ranks()})
            channel_->send(to, text);
    }

    Model* model_;
    Channel* channel_;
    state_route route_;
    double max_norm_;
    bool has_barrier_;
    std::size_t all_stages_;
    std::vector<stage> own_stages_;
    /// Number of updates requested in this step.
    std::size_t updates_ = 0;
    /// The decision under which the last updates were made. Empty once the updates are validated.
    std::optional<update_decision> made_;
    bool is_void_ = false;
    bool was_void_ = false;
};

} // namespace optpipe::execution

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <string>

namespace optpipe::execution {

OPTPIPE_INLINE std::vector<rank> order_of_ends(const schedule& s) {
    per_rank<duration> ends(s.graph.ranks());
    for (const auto& each : s.operations) {
        auto& end = ends[s.graph.rank_of(each.op.stage)];
        end = std::max(end, each.end);
    }
    std::vector<rank> order;
    for (const rank r : s.graph.all_ranks())
        order.push_back(r);
    std::stable_sort(order.begin(), order.end(), [&](rank a, rank b) { return ends[a] < ends[b]; });
    return order;
}

OPTPIPE_INLINE state_route::state_route(std::vector<rank> order, rank self, std::size_t ranks) {
    if (order.empty())
        for (const rank r : index_range<rank>{ranks})
            order.push_back(r);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted.size() != ranks || sorted.back() != rank{ranks - 1} ||
        std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
        throw error{"post-validation: an order that doesn't have each of " + std::to_string(ranks) + " ranks once"};
    last_ = order.back();
    const auto at = std::find(order.begin(), order.end(), self);
    if (at != order.begin()) previous_ = at[-1];
    if (self != last_) next_ = at[1];
}

OPTPIPE_INLINE std::vector<stage> updated_stages(const rank_program& p) {
    std::vector<stage> found;
    for (const auto& i : p.instructions)
        if (i.kind == instruction_kind::update) found.push_back(i.op.stage);
    if (found.empty()) throw error{"post-validation: a program without updates"};
    return found;
}

} // namespace optpipe::execution
#endif
