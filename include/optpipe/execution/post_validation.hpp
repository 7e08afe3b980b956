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
    /// Of the gradients of all stages together; larger ones are scaled down to it.
    double max_norm = std::numeric_limits<double>::infinity();
    /// In which the state of the gradients passes through the ranks: all of them, on every rank the same. Empty: 0, 1,
    /// and so on. A rank waits for those before it, so that one that ends late should come late (`order_of_ends`).
    /// Results don't depend on it.
    std::vector<rank> order{};
    /// No rank makes its update before the gradients of all are known, as without post-validation. To compare with.
    bool barrier = false;
};

/// The ranks in the order in which a schedule lets them end. In ZB-H2 that of their numbers, in 1F1B the other way
/// round.
[[nodiscard]] std::vector<rank> order_of_ends(const schedule& s);

/// The way of the state of gradients through the ranks, seen from one of them.
class state_route {
public:
    /// Throws `error` if the order isn't one of all ranks, each once. Empty: that of their numbers.
    state_route(std::vector<rank> order, rank self, std::size_t ranks);

    /// Null on the first, and on the last.
    [[nodiscard]] std::optional<rank> previous() const { return previous_; }
    [[nodiscard]] std::optional<rank> next() const { return next_; }
    [[nodiscard]] rank last() const { return last_; }

private:
    std::optional<rank> previous_;
    std::optional<rank> next_;
    rank last_{};
};

/// The stages of which a rank has the updates, in the order of its program. Throws `error` if there are none.
[[nodiscard]] std::vector<stage> updated_stages(const rank_program& p);

/// Post-validation of the optimizer's step (Qi et al. 2024, Zero Bubble, section 4): a model around a reversible one,
/// which `runner` and `handover` run in its place, with programs that have updates.
///
/// Whether a step is skipped, and how far its gradients are scaled down, depends on those of all ranks; waiting for
/// them before the update would be a barrier in the middle of training. Here a rank makes its updates under what is
/// known from the ranks before it in the order, and passes that on with its own. The last one knows everything and
/// tells all. What comes back is read before the rank's first backward of the next step: the forwards of its warm-up
/// run meanwhile. If it demands something else than what was made, the rank takes its updates back and makes them again
/// (`revise`), so that parameters are those of the barrier, bit for bit.
///
/// If any rank had to, all know it, and the step in which they learn it is void, as some forwards have seen wrong
/// parameters: from then on their computations do nothing, while messages and copies go on, so that the program isn't
/// torn. All ranks find a void step by `was_void` and run it again:
///
///     for (std::size_t i = 0; i < steps; ++i)
///         do run.step(); while (model.was_void());
///     model.finish(executor);
///
/// A void step takes the time of its messages, copies and first forwards. Overflows are rare, and so should be
/// gradients that are scaled down; where most steps are, the barrier is faster. A reversible optimizer costs memory:
/// a copy of parameters and moments, if it keeps one.
///
/// In a void step a forward of a rank that hasn't learned it yet may be handed what an earlier message left: a model
/// that reads positions from its input checks them. Replicas of a pipeline (`reduce`) need gradients of the same bits,
/// so that all find the same steps void.
///
/// The host decides, so that a step can't be captured as a graph.
///
/// Contract: all ranks run equally many steps with the same options, those of one process on threads of their own; the
/// program has the same stages as the one given, and model and channel outlive it. Its calls are those of one rank's
/// lanes; the others are for the thread that issues, between two steps.
template <class Model, peer_channel Channel> class post_validated {
public:
    /// Throws `error` if the program has no updates, or the order isn't one.
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
    template <class Lane> void reduce(Lane& on, stage s) requires has_reduce<Model, Lane> {
        if (!is_void_) model_->reduce(on, s);
    }
    /// The program's last one makes them all: no earlier one knows the gradients of all stages of the rank.
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

    /// Whether the last step was, and has to be run again: the same on all ranks.
    [[nodiscard]] bool was_void() const { return was_void_; }
    /// After the last step: the validation of its updates. Throws what the executor's `finish` throws.
    template <executor Executor> void finish(Executor& on) {
        auto lane = on.open_lane(lane_kind::compute, 1);
        lane.launch({task_label::task_kind::update, optpipe::forward(own_stages_.front(), microbatch{0}), {}},
                    validation{this});
        on.finish();
        is_void_ = false; // there was no step
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
    /// What was made under less than all gradients becomes what is right.
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
    /// How many of the step have been asked for.
    std::size_t updates_ = 0;
    /// What the last updates were made by, until it is settled.
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
