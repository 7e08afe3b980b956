#pragma once

#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/bound_program.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/lane_pool.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::execution {

/// A program that is ready to run, with addresses, lanes and markers. Only the thread that issues may use a loaded
/// program. Executor, model, arenas and lanes must outlive the loaded program. Any thread may destroy a loaded program
/// once its steps have ended.
template <class Executor, class Model> class loaded_program {
    using lane_type = lane_of<Executor>;
    using task = bound_program::task;

public:
    /// Throws the executor's exception if the executor has no more lanes or markers.
    loaded_program(bound_program p, Executor& on, Model& model, lane_pool<Executor>& from)
        : executor_{&on}, model_{&model}, program_{std::move(p)}, markers_{from.markers(program_.markers)},
          lanes_{from.lanes(program_.lane_kinds, program_.commands)} {}
    loaded_program(const loaded_program&) = delete;
    loaded_program& operator=(const loaded_program&) = delete;

    /// Puts one step into the lanes, without waiting for it.
    void issue() {
        for (const auto& t : program_.tasks) {
            auto& on = *lanes_[t.lane];
            for (std::uint32_t w = t.first_wait; w != t.first_wait + t.waits; ++w)
                on.wait(*markers_[program_.waits[w].position()]);
            switch (t.kind) {
            case instruction_kind::compute:
            case instruction_kind::update:
            case instruction_kind::reduce: on.launch(t.label, work{model_, &t}); break;
            case instruction_kind::copy: copy(on, t); break;
            case instruction_kind::exchange: exchange(on, t); break;
            }
            if (t.records != no_marker) on.record(*markers_[t.records.position()]);
        }
    }
    /// Makes the next step wait for the marker before it computes or copies.
    void wait(const marker_of<Executor>& until) {
        for (std::size_t l = 0; l < lanes_.size(); ++l)
            if (const auto kind = program_.lane_kinds[l]; !carries_messages(kind) && kind != lane_kind::reduce)
                lanes_[l]->wait(until);
    }
    /// The measured times of the program's instructions, in the order of the program.
    [[nodiscard]] std::vector<task_times> times() const requires timed_lane<lane_type> {
        std::vector<std::span<const task_times>> left;
        for (const auto* lane : lanes_)
            left.emplace_back(lane->times());
        std::vector<task_times> all;
        for (const auto& t : program_.tasks)
            if (auto& own = left[t.lane]; !own.empty()) {
                all.push_back(own.front());
                own = own.subspan(1);
            }
        return all;
    }
    void forget_times() requires timed_lane<lane_type> {
        for (auto* on : lanes_)
            on->forget_times();
    }

private:
    struct work {
        Model* model;
        const task* what;
        void operator()(lane_type& on) const { loaded_program::compute(*model, on, *what); }
    };

    static void compute(Model& model, lane_type& on, const task& t) {
        const auto& [s, kind, m, storage, is_paired] = t.label.op;
        if (t.kind == instruction_kind::update) {
            if constexpr (has_update<Model, lane_type>) model.update(on, s);
            return;
        }
        if (t.kind == instruction_kind::reduce) {
            if constexpr (has_reduce<Model, lane_type>) model.reduce(on, s);
            return;
        }
        if (t.backward) {
            if constexpr (has_overlap<Model, lane_type>) overlap(model, on, t);
            return;
        }
        if (kind == operation_kind::forward) return model.forward(on, forward_of(t));
        if constexpr (!forward_only_model<Model>) compute_backward(model, on, t);
    }
    static void overlap(Model& model, lane_type& on, const task& t) {
        auto back = backward_of(*t.backward);
        back.is_full = t.backward->label.op.kind == operation_kind::backward;
        back.pair_memory = t.pair_memory;
        model.overlap(on, forward_of(t), back);
    }
    /// The bytes of the first value. Empty if there are no values.
    template <class Value> static auto first_of(std::span<const Value> values) {
        return values.empty() ? decltype(values.front().data){} : values.front().data;
    }
    static forward_task forward_of(const task& t) {
        const auto& op = t.label.op;
        return {op.stage,   op.microbatch, first_of(t.inputs), first_of(t.outputs), t.kept,       t.freed,
                op.storage, t.inputs,      t.outputs,          t.partial_outputs,   t.keys_values};
    }
    static backward_task backward_of(const task& t) {
        const auto& op = t.label.op;
        return {.stage = op.stage,
                .microbatch = op.microbatch,
                .input = first_of(t.inputs),
                .output = first_of(t.outputs),
                .kept = t.kept,
                .freed = t.freed,
                .added = t.added,
                .restored_kept = t.restored_kept,
                .restored_freed = t.restored_freed,
                .storage = op.storage,
                .is_last = t.is_last,
                .inputs = t.inputs,
                .outputs = t.outputs,
                .partials = t.partial_inputs,
                .keys_values = t.keys_values,
                .keys_values_gradients = t.keys_values_gradients};
    }
    static void compute_backward(Model& model, lane_type& on, const task& t) {
        const auto& [s, kind, m, storage, is_paired] = t.label.op;
        const weight_task weight{s, m, t.kept, t.added, t.restored_kept, storage, t.is_last};
        const auto back = backward_of(t);
        switch (kind) {
        case operation_kind::recompute:
            if constexpr (has_recompute<Model, lane_type>)
                model.recompute(on, {s, m, t.kept, t.freed, t.restored_kept, t.restored_freed, storage, t.keys_values});
            return;
        case operation_kind::backward_input: return model.backward_input(on, back);
        case operation_kind::backward_weight: return model.backward_weight(on, weight);
        case operation_kind::backward:
            if constexpr (has_backward<Model, lane_type>) {
                model.backward(on, back);
            } else {
                model.backward_input(on, back);
                model.backward_weight(on, weight);
            }
            return;
        case operation_kind::forward:
        case operation_kind::offload:
        case operation_kind::reload: return;
        }
    }
    void copy(lane_type& on, const task& t) {
        const auto pieces = copy_pieces{program_.copies}.subspan(t.first, t.count);
        const auto way = t.label.op.kind == operation_kind::offload ? copy_direction::out : copy_direction::in;
        executor_->copies().copy(on, way, t.label, pieces);
    }
    void exchange(lane_type& on, const task& t) {
        const auto planned = message_ends{program_.messages}.subspan(t.first, t.count);
        if constexpr (has_message<Model>)
            if (program_.owners.messages == buffer_owner::engine) {
                messages_.clear();
                for (const auto& m : planned)
                    messages_.push_back(m.sends ? send_of(m.label, model_->message(m.label))
                                                : receive_of(m.label, model_->message(m.label)));
                return executor_->transport().exchange(on, messages_);
            }
        executor_->transport().exchange(on, planned);
    }

    Executor* executor_;
    Model* model_;
    bound_program program_;
    std::vector<marker_of<Executor>*> markers_;
    std::vector<lane_type*> lanes_;
    /// The messages of one exchange, with the training engine's addresses. The vector is reused for each exchange.
    std::vector<message_end> messages_;
};

} // namespace optpipe::execution
