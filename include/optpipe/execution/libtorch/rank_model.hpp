#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/execution/clock_time.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/message.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/execution/libtorch/stage_runner.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/threads/lane.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// Losses, activations and gradients, indexed by the operation that computes them. Holds activations and gradients only
/// if no message with bytes carries them. The ranks of a `pipeline` share a table. The oldest value of an operation is
/// taken first, because a rank may be one step ahead.
class value_table {
public:
    void put(const operation& of, tensors values) {
        const std::scoped_lock lock{mutex_};
        values_[key_of(of)].push_back(std::move(values));
    }
    [[nodiscard]] tensors take(const operation& of) {
        const std::scoped_lock lock{mutex_};
        const auto found = values_.find(key_of(of));
        if (found == values_.end()) throw error{"a value that a stage needs isn't there"};
        auto values = std::move(found->second.front());
        found->second.pop_front();
        if (found->second.empty()) values_.erase(found);
        return values;
    }

private:
    using key = std::tuple<stage, bool, microbatch>;
    static key key_of(const operation& of) { return {of.stage, of.kind == operation_kind::forward, of.microbatch}; }

    std::mutex mutex_;
    std::map<key, std::deque<tensors>> values_;
};

/// Options for running the operations of a rank.
struct rank_options {
    /// Number of bytes in the problem's unit of memory, for the report.
    double bytes_per_unit = 1.0;
    /// Duration of the problem's unit of time. If set, each operation takes at least its planned time. Must be empty if
    /// lanes aren't threads.
    std::optional<clock_time> pace{};
};

/// Properties of a type of lane. `scope{lane}` makes LibTorch work in the lane while the scope exists. If `is_host`,
/// calls return when their work is done, and messages are in host memory. If not `is_host`, calls only put work into a
/// stream, and messages are on the device. `make_memory(program)` returns the memory of the rank's stashes.
/// `device_of(executor)` returns the device of the stages, and is needed only without `is_host`.
template <class Lane> struct lane_traits;
template <> struct lane_traits<threads::lane> {
    struct scope {
        explicit scope(threads::lane&) {}
    };
    static constexpr bool is_host = true;
    static std::unique_ptr<stash_memory> make_memory(const rank_program&) { return std::make_unique<stash_memory>(); }
};

/// The stages of a rank, as an `execution::stage_model`. The model owns all stashes, so programs run with
/// `execution::buffer_owner::engine`.
class rank_model {
public:
    /// `p`, `model` and `values` must outlive this object.
    rank_model(const problem& p, const training& model, rank self, const rank_options& how, value_table& values,
               std::unique_ptr<stash_memory> memory)
        : problem_{p}, model_{model}, how_{how}, values_{values}, memory_{std::move(memory)} {
        for (const stage s : p.graph.all_stages()) {
            if (p.rank_of(s) != self) continue;
            std::vector<stash_option> options;
            for (std::size_t i = 0; i < p.storage_options(s); ++i)
                options.push_back(stash_option_of(p.storage_of(s, i), model));
            const stage_runner::place where{s, p.graph.stages(), p.graph.microbatches()};
            runners_[s] = std::make_unique<stage_runner>(model, where, std::move(options), *memory_);
        }
    }
    rank_model(const rank_model&) = delete;
    rank_model& operator=(const rank_model&) = delete;

    template <class Lane> void forward(Lane& on, const execution::forward_task& t) {
        run(on, operation_of(operation_kind::forward, t), [&] {
            auto& runner = *runners_.at(t.stage);
            const auto inputs =
                runner.is_first() ? model_.input(step_, t.microbatch)
                                  : received<Lane>(optpipe::forward(t.stage.previous(), t.microbatch), t.input, runner);
            auto [now, outputs] = runner.forward(step_, t.microbatch, inputs, t.storage);
            sizes_of(t.stage, t.storage, &stash_bytes::after_forward, *now);
            keep(t.stage, t.microbatch, std::move(now));
            if (runner.is_last()) losses_.push_back(outputs.front());
            hand_on<Lane>(optpipe::forward(t.stage, t.microbatch), std::move(outputs), t.output, runner);
        });
    }
    template <class Lane> void recompute(Lane& on, const execution::recompute_task& t) {
        run(on, operation_of(operation_kind::recompute, t), [&] {
            auto& now = cell_of(t.stage, t.microbatch);
            now.saved->recompute();
            sizes_of(t.stage, t.storage, &stash_bytes::after_recompute, now);
        });
    }
    template <class Lane> void backward_input(Lane& on, const execution::backward_task& t) {
        run(on, operation_of(operation_kind::backward_input, t), [&] {
            auto& now = cell_of(t.stage, t.microbatch);
            hand_back<Lane>(t, runners_.at(t.stage)->backward_input(now, gradients_for<Lane>(t)));
            sizes_of(t.stage, t.storage, &stash_bytes::after_input_gradient, now);
        });
    }
    template <class Lane> void backward_weight(Lane& on, const execution::weight_task& t) {
        run(on, operation_of(operation_kind::backward_weight, t), [&] {
            runners_.at(t.stage)->backward_weight(cell_of(t.stage, t.microbatch));
            static_cast<void>(released(t.stage, t.microbatch));
        });
    }
    template <class Lane> void backward(Lane& on, const execution::backward_task& t) {
        run(on, operation_of(operation_kind::backward, t), [&] {
            auto& now = cell_of(t.stage, t.microbatch);
            hand_back<Lane>(t, runners_.at(t.stage)->backward(now, gradients_for<Lane>(t)));
            static_cast<void>(released(t.stage, t.microbatch));
        });
    }
    /// Executes the program's offloads and reloads.
    template <class Lane> void copy(Lane& on, const operation& op) {
        run(on, op, [&] {
            auto& saved = *cell_of(op.stage, op.microbatch).saved;
            if (op.kind == operation_kind::offload)
                saved.move_to_host(runners_.at(op.stage)->option(op.storage).share);
            else
                saved.move_to_device();
        });
    }

    /// See `stage_runner::rehearse`. Must be called for each storage option before the first step.
    rehearsal rehearse(stage s, const tensors& inputs, storage_index how) {
        auto& runner = *runners_.at(s);
        auto done = runner.rehearse(inputs, how);
        memory_->end_step();
        if (!runner.is_first()) between_[s.previous()] = message_layout{inputs};
        if (!runner.is_last()) between_[s] = message_layout{done.outputs};
        return done;
    }
    /// Starts a step, and discards the losses of the previous step. Waits for earlier work in this thread's current
    /// streams, such as the optimizer step.
    void begin_step(std::size_t step) {
        step_ = step;
        losses_.clear();
        synchronize_all();
    }
    /// Called when all tasks of a step have ended.
    void end_step() { memory_->end_step(); }
    /// Called after the last rehearsal. Resets the maxima of the meters, and returns unused memory to the devices.
    void end_rehearsals() {
        synchronize_all();
        for (auto* const meter : {&memory_->device, &memory_->host})
            meter->forget_most();
        std::set<at::DeviceType> types;
        for (const auto& [s, runner] : runners_)
            if (types.insert(runner->device().type()).second) return_unused_memory(runner->device());
    }
    [[nodiscard]] at::Device device_of(stage s) const { return runners_.at(s)->device(); }
    [[nodiscard]] const tensors& losses() const { return losses_; }
    [[nodiscard]] stash_memory& memory() { return *memory_; }
    /// The measured bytes of stashes, by stage and storage option.
    [[nodiscard]] std::vector<stash_bytes> stashes() const {
        std::vector<stash_bytes> all;
        for (const auto& [of, bytes] : sizes_)
            all.push_back(bytes);
        return all;
    }

private:
    template <class Task> static operation operation_of(operation_kind kind, const Task& t) {
        return {t.stage, kind, t.microbatch, t.storage};
    }
    /// Runs an operation's work, as a range in PyTorch's profiler.
    template <class Lane, class Work> void run(Lane& on, const operation& op, const Work& work) const {
        RECORD_USER_SCOPE("PP:" + to_string(op));
        const auto start = std::chrono::steady_clock::now();
        const typename lane_traits<Lane>::scope here{on};
        memory_->begin(op);
        work();
        memory_->end(op);
        if (how_.pace) std::this_thread::sleep_until(start + on_clock(duration_of(problem_, op), *how_.pace));
    }
    void synchronize_all() const {
        for (const auto& [s, runner] : runners_)
            synchronize(runner->device());
    }
    // The lock protects the cells, which several lanes use.
    [[nodiscard]] cell& cell_of(stage s, microbatch m) {
        const std::scoped_lock lock{mutex_};
        return *cells_.at({s, m});
    }
    void keep(stage s, microbatch m, std::unique_ptr<cell> now) {
        const std::scoped_lock lock{mutex_};
        cells_[{s, m}] = std::move(now);
    }
    std::unique_ptr<cell> released(stage s, microbatch m) {
        const std::scoped_lock lock{mutex_};
        return std::move(cells_.extract({s, m}).mapped());
    }
    template <class Lane> static at::Device device_of_messages(const stage_runner& of) {
        return lane_traits<Lane>::is_host ? at::Device{at::kCPU} : of.device();
    }
    template <class Lane>
    [[nodiscard]] tensors received(const operation& of, std::span<const std::byte> message, const stage_runner& to) {
        if (message.empty()) return values_.take(of);
        return layout_of(of).read(message, device_of_messages<Lane>(to), to.device());
    }
    template <class Lane>
    void hand_on(const operation& of, tensors values, std::span<std::byte> message, const stage_runner& from) {
        if (message.empty()) return values_.put(of, std::move(values));
        layout_of(of).write(values, message, device_of_messages<Lane>(from));
    }
    /// The layout of the message that `of` sends. A gradient has the same layout as its activation.
    [[nodiscard]] const message_layout& layout_of(const operation& of) const {
        return between_.at(of.kind == operation_kind::forward ? of.stage : of.stage.previous());
    }
    template <class Lane> [[nodiscard]] tensors gradients_for(const execution::backward_task& t) {
        const auto& runner = *runners_.at(t.stage);
        if (runner.is_last()) return runner.loss_gradients(values_.take(optpipe::forward(t.stage, t.microbatch)));
        return received<Lane>(optpipe::backward_input(t.stage.next(), t.microbatch), t.input, runner);
    }
    template <class Lane> void hand_back(const execution::backward_task& t, tensors gradients) {
        const auto& runner = *runners_.at(t.stage);
        if (runner.is_first()) return;
        hand_on<Lane>(optpipe::backward_input(t.stage, t.microbatch), std::move(gradients), t.output, runner);
    }
    void sizes_of(stage s, storage_index how, planned_bytes stash_bytes::*when, const cell& now) {
        const auto planned = [&](memory_size size) {
            return static_cast<std::size_t>(std::llround(size.value() * how_.bytes_per_unit));
        };
        const auto [at, is_new] = sizes_.try_emplace({s, how});
        auto& found = at->second;
        if (is_new) {
            const auto& option = problem_.storage_of(s, how);
            const auto& costs = problem_.costs[s];
            found = {s,
                     std::string{option.name.view()},
                     {planned(option.held), 0},
                     {planned(costs.activation), 0},
                     {planned(costs.weight_stash), 0}};
        }
        auto& measured = (found.*when).measured;
        measured = std::max(measured, now.saved->bytes());
    }

    const problem& problem_;
    const training& model_;
    rank_options how_;
    value_table& values_;
    std::unique_ptr<stash_memory> memory_;
    std::map<stage, std::unique_ptr<stage_runner>> runners_{};
    /// Indexed by the stage that hands the tensors on.
    std::map<stage, message_layout> between_{};
    std::mutex mutex_{};
    std::map<std::pair<stage, microbatch>, std::unique_ptr<cell>> cells_{};
    std::map<std::pair<stage, storage_index>, stash_bytes> sizes_{};
    tensors losses_{};
    std::size_t step_ = 0;
};

} // namespace optpipe::libtorch
