#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace optpipe::testing {

/// Slows another stage model down to the durations in the problem. Each operation ends at its planned duration, or
/// later if the model takes longer. With `tracing_model`, a plan can be run before the real model exists.
///
/// Use a paced model with lanes that run work after all earlier commands, as threads do. With a CUDA stream, a paced
/// model would block the issuing thread. The system takes up to a tenth of a millisecond to wake up a thread. A wake-up
/// prolongs an operation unless `spin` is at least as long.
template <class Model> class paced_model {
public:
    /// `unit` is the real duration of one unit of time in the problem. An operation sleeps until `spin` before its end,
    /// and then spins.
    paced_model(Model model, const problem& p, clock_time unit, std::chrono::nanoseconds spin = {})
        : model_{std::move(model)}, problem_{p}, unit_{unit}, spin_{spin} {}

    template <class Lane> void forward(Lane& on, const execution::forward_task& t) {
        const pace keep{*this, time_of(operation_kind::forward, t)};
        model_.forward(on, t);
    }
    template <class Lane> void backward_input(Lane& on, const execution::backward_task& t) {
        const pace keep{*this, time_of(operation_kind::backward_input, t)};
        model_.backward_input(on, t);
    }
    template <class Lane> void backward_weight(Lane& on, const execution::weight_task& t) {
        const pace keep{*this, time_of(operation_kind::backward_weight, t)};
        model_.backward_weight(on, t);
    }
    template <class Lane>
    void backward(Lane& on, const execution::backward_task& t) requires execution::has_backward<Model, Lane> {
        const pace keep{*this, time_of(operation_kind::backward, t)};
        model_.backward(on, t);
    }
    template <class Lane>
    void recompute(Lane& on, const execution::recompute_task& t) requires execution::has_recompute<Model, Lane> {
        const pace keep{*this, time_of(operation_kind::recompute, t)};
        model_.recompute(on, t);
    }
    template <class Lane>
    void overlap(Lane& on, const execution::forward_task& f,
                 const execution::backward_task& b) requires execution::has_overlap<Model, Lane> {
        const operation first{f.stage, operation_kind::forward, f.microbatch, f.storage};
        const auto kind = b.is_full ? operation_kind::backward : operation_kind::backward_input;
        const operation second{b.stage, kind, b.microbatch, b.storage};
        const auto* const pair = overlap_of(problem_, first, second);
        OPTPIPE_EXPECT(pair, "paced_model: the problem has no such pair");
        const pace keep{*this, pair_duration(problem_, *pair, first, second)};
        model_.overlap(on, f, b);
    }
    template <class Lane> void update(Lane& on, stage which) requires execution::has_update<Model, Lane> {
        model_.update(on, which);
    }
    template <class Lane> void reduce(Lane& on, stage which) requires execution::has_reduce<Model, Lane> {
        model_.reduce(on, which);
    }

    [[nodiscard]] const Model& model() const { return model_; }

private:
    using clock = std::chrono::steady_clock;

    template <class Task> [[nodiscard]] duration time_of(operation_kind kind, const Task& t) const {
        return duration_of(problem_, {t.stage, kind, t.microbatch, t.storage});
    }

    /// The destructor waits until the planned duration since construction has passed.
    class pace {
    public:
        pace(const paced_model& of, duration time) : end_{clock::now() + on_clock(time, of.unit_)}, spin_{of.spin_} {}
        pace(const pace&) = delete;
        pace& operator=(const pace&) = delete;
        ~pace() {
            std::this_thread::sleep_until(end_ - spin_);
            while (clock::now() < end_) {
            }
        }

    private:
        clock::time_point end_;
        std::chrono::nanoseconds spin_;
    };

    Model model_;
    problem problem_;
    clock_time unit_;
    std::chrono::nanoseconds spin_;
};

} // namespace optpipe::testing
