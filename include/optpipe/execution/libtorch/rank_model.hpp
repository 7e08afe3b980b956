#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/execution/libtorch/stage_runner.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// Activations and gradients between stages, by the operation that makes them. All ranks of a process share a
/// `value_table`. A rank may be a step ahead of its neighbour, so the oldest value of an operation is taken first.
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

/// The stages of a rank, as a model of the program's tasks (`execution::stage_model`). The model owns all tensors:
/// programs run with `execution::buffer_owner::engine`. The calls of a lane return when their work is done.
class rank_model {
public:
    /// `p`, `model` and `values` outlive this object.
    rank_model(const problem& p, const training& model, rank self, double bytes_per_unit, value_table& values)
        : problem_{p}, model_{model}, bytes_per_unit_{bytes_per_unit}, values_{values} {
        for (const stage s : p.graph.all_stages()) {
            if (p.rank_of(s) != self) continue;
            std::vector<stash_option> options;
            for (std::size_t i = 0; i < p.storage_options(s); ++i)
                options.push_back(stash_option_of(p.storage_of(s, i), model));
            const stage_runner::place where{s, p.graph.stages(), p.graph.microbatches()};
            runners_[s] = std::make_unique<stage_runner>(model, where, std::move(options), meters_);
        }
    }
    rank_model(const rank_model&) = delete;
    rank_model& operator=(const rank_model&) = delete;

    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        RECORD_USER_SCOPE(label_of(operation_kind::forward, t));
        auto& runner = *runners_.at(t.stage);
        const auto inputs = runner.is_first() ? model_.input(step_, t.microbatch)
                                              : values_.take(optpipe::forward(t.stage.previous(), t.microbatch));
        auto [now, outputs] = runner.forward(step_, t.microbatch, inputs, t.storage);
        sizes_of(t.stage, t.storage, &stash_bytes::after_forward, *now);
        keep(t.stage, t.microbatch, std::move(now));
        if (runner.is_last()) losses_.push_back(outputs.front());
        values_.put(optpipe::forward(t.stage, t.microbatch), std::move(outputs));
    }
    template <class Lane> void recompute(Lane&, const execution::recompute_task& t) {
        RECORD_USER_SCOPE(label_of(operation_kind::recompute, t));
        auto& now = cell_of(t.stage, t.microbatch);
        now.saved->recompute();
        sizes_of(t.stage, t.storage, &stash_bytes::after_recompute, now);
    }
    template <class Lane> void backward_input(Lane&, const execution::backward_task& t) {
        RECORD_USER_SCOPE(label_of(operation_kind::backward_input, t));
        auto& now = cell_of(t.stage, t.microbatch);
        hand_back(t, runners_.at(t.stage)->backward_input(now, gradients_for(t)));
        sizes_of(t.stage, t.storage, &stash_bytes::after_input_gradient, now);
    }
    template <class Lane> void backward_weight(Lane&, const execution::weight_task& t) {
        RECORD_USER_SCOPE(label_of(operation_kind::backward_weight, t));
        runners_.at(t.stage)->backward_weight(cell_of(t.stage, t.microbatch));
        static_cast<void>(released(t.stage, t.microbatch));
    }
    template <class Lane> void backward(Lane&, const execution::backward_task& t) {
        RECORD_USER_SCOPE(label_of(operation_kind::backward, t));
        hand_back(t, runners_.at(t.stage)->backward(cell_of(t.stage, t.microbatch), gradients_for(t)));
        static_cast<void>(released(t.stage, t.microbatch));
    }
    /// Runs the program's offloads and reloads.
    void offload(const operation& of) {
        RECORD_USER_SCOPE("PP:" + to_string(of));
        const auto share = runners_.at(of.stage)->option(of.storage).share;
        cell_of(of.stage, of.microbatch).saved->move_to_host(share);
    }
    void reload(const operation& of) {
        RECORD_USER_SCOPE("PP:" + to_string(of));
        cell_of(of.stage, of.microbatch).saved->move_to_device();
    }

    /// See `stage_runner::rehearse`. To be called before the first step, for the storage options that will be used.
    rehearsal rehearse(stage s, const tensors& inputs, storage_index how) {
        return runners_.at(s)->rehearse(inputs, how);
    }
    /// Forgets the losses of the step before.
    void begin_step(std::size_t step) {
        step_ = step;
        losses_.clear();
    }
    [[nodiscard]] const tensors& losses() const { return losses_; }
    [[nodiscard]] byte_meters& meters() { return meters_; }
    /// The bytes that the stashes took, by stage and storage option.
    [[nodiscard]] std::vector<stash_bytes> stashes() const {
        std::vector<stash_bytes> all;
        for (const auto& [of, bytes] : sizes_)
            all.push_back(bytes);
        return all;
    }

private:
    template <class Task> static std::string label_of(operation_kind kind, const Task& t) {
        return "PP:" + to_string(operation{t.stage, kind, t.microbatch});
    }
    // Locked, because the compute lane makes and destroys cells while copy lanes look for cells.
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
    [[nodiscard]] tensors gradients_for(const execution::backward_task& t) {
        const auto& runner = *runners_.at(t.stage);
        if (!runner.is_last()) return values_.take(optpipe::backward_input(t.stage.next(), t.microbatch));
        return runner.loss_gradients(values_.take(optpipe::forward(t.stage, t.microbatch)));
    }
    void hand_back(const execution::backward_task& t, tensors gradients) {
        if (!runners_.at(t.stage)->is_first())
            values_.put(optpipe::backward_input(t.stage, t.microbatch), std::move(gradients));
    }
    void sizes_of(stage s, storage_index how, planned_bytes stash_bytes::*when, const cell& now) {
        const auto planned = [&](memory_size size) {
            return static_cast<std::size_t>(std::llround(size.value() * bytes_per_unit_));
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
    double bytes_per_unit_;
    value_table& values_;
    byte_meters meters_{};
    std::map<stage, std::unique_ptr<stage_runner>> runners_{};
    std::mutex mutex_{};
    std::map<std::pair<stage, microbatch>, std::unique_ptr<cell>> cells_{};
    std::map<std::pair<stage, storage_index>, stash_bytes> sizes_{};
    tensors losses_{};
    std::size_t step_ = 0;
};

} // namespace optpipe::libtorch
