#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/libtorch/backward_halves.hpp"
#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/execution/libtorch/random.hpp"
#include "optpipe/execution/libtorch/stash.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/engine.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// The effect of a storage option on a stash.
struct stash_option {
    /// Whether a RECOMPUTE restores the stash before the backward.
    bool is_ahead = false;
    /// The share of the held bytes that is offloaded.
    double share = 0.0;
    /// Names of the parts that are recomputed. The name "" stands for the entire stage.
    std::vector<std::string> recomputed{};
};
[[nodiscard]] inline stash_option stash_option_of(const storage_option& of, const training& model) {
    stash_option option{of.recomputes(), 0.0, {}};
    if (of.offloads() && of.held.value() > 0.0) option.share = of.transfer_size.value() / of.held.value();
    if (!of.recomputes() && !(of.backward_extra > duration{})) return option;
    const auto named = model.recomputed.find(std::string{of.name.view()});
    option.recomputed = named == model.recomputed.end() ? std::vector<std::string>{""} : named->second;
    return option;
}

/// The state of one microbatch on a stage, from forward to backward.
struct cell {
    explicit cell(std::unique_ptr<stash> own) : saved{std::move(own)} {}

    /// Declared first, because the stash must outlive the graph.
    std::unique_ptr<stash> saved;
    tensors input_gradients{};
    /// The autograd edges of the outputs. Edges of outputs without gradient are invalid.
    torch::autograd::edge_list roots{};
    node_pointer entry{};
    std::size_t inputs = 0;
    /// A part of the work of W. Autograd starts with `gradients` at `edges`, and computes the gradients of `weights`.
    /// If `weights` is empty, autograd computes the gradients of all weights.
    struct deferred_gradients {
        torch::autograd::edge_list edges;
        std::vector<item_pointer> gradients;
        tensors weights;
    };
    std::vector<deferred_gradients> deferred{};
};

/// One microbatch's measurements: seconds per operation, and bytes on the device afterwards.
struct rehearsal {
    struct of_operation {
        double seconds = 0.0;
        std::size_t bytes = 0;
    };
    tensors outputs{};
    of_operation forward{}, offload{}, reload{}, recompute{}, backward_input{}, backward_weight{};
};

/// Runs the operations of one stage.
class stage_runner {
public:
    /// The stage's position in its pipeline, and the size of the pipeline.
    struct place {
        stage self{};
        std::size_t stages = 1;
        std::size_t microbatches = 1;
    };

    /// `model` and `memory` must outlive this object. Throws `error` if Python's autograd is in use.
    stage_runner(const training& model, const place& where, std::vector<stash_option> options, stash_memory& memory)
        : model_{model}, module_{model.stages[where.self.position()]}, place_{where}, options_{std::move(options)},
          memory_{memory}, device_{device_of(module_)} {
        install_saving_engine();
        for (const auto* const owned : {&module_.buffers, &module_.parameters})
            for (const auto& each : *owned)
                weights_.insert(each.storage().data());
        anchor_ = at::empty({0}, at::TensorOptions{at::kFloat}.device(device_)).requires_grad_();
    }
    stage_runner(const stage_runner&) = delete;
    stage_runner& operator=(const stage_runner&) = delete;

    [[nodiscard]] bool is_first() const { return place_.self.position() == 0; }
    [[nodiscard]] bool is_last() const { return place_.self.position() + 1 == place_.stages; }
    [[nodiscard]] at::Device device() const { return device_; }
    [[nodiscard]] const stash_option& option(storage_index which) const { return options_[which]; }

    struct forward_result {
        std::unique_ptr<cell> now;
        /// The outputs of the last stage are the loss.
        tensors outputs;
    };
    [[nodiscard]] forward_result forward(std::size_t step, microbatch m, const tensors& inputs, storage_index how);
    /// Returns the gradients of the inputs. An entry is undefined if its input has no gradient.
    [[nodiscard]] tensors backward(cell& now, const tensors& gradients);
    /// Returns the gradients of the inputs. The first stage leaves all work to W.
    [[nodiscard]] tensors backward_input(cell& now, const tensors& gradients);
    void backward_weight(cell& now);
    /// The gradients with which the backward of the last stage starts.
    [[nodiscard]] tensors loss_gradients(const tensors& outputs) const {
        return {at::full_like(outputs.front(), 1.0 / static_cast<double>(place_.microbatches))};
    }

    /// Runs one microbatch and discards its gradients. Finds which saved tensors W needs, and whether the stage draws
    /// random numbers. If backwards can't be split, `backward_input` has the measurements of the full backward.
    /// `inputs` may be on a device other than the stage's.
    rehearsal rehearse(const tensors& inputs, storage_index how);

private:
    using edge_list = torch::autograd::edge_list;

    static tensors execute(const edge_list& roots, const tensors& gradients, bool keeps_graph, bool accumulates,
                           const edge_list& to = {}) {
        if (roots.empty()) return {};
        constexpr bool creates_graph = false;
        return torch::autograd::Engine::get_default_engine().execute(roots, gradients, keeps_graph, creates_graph,
                                                                     accumulates, to);
    }
    [[nodiscard]] std::uint64_t seed(std::size_t step, microbatch m) const {
        return seed_of(model_, step, place_.self, m, place_.microbatches);
    }
    [[nodiscard]] tensors run_module(cell& now, const tensors& inputs, std::size_t step, microbatch m) const;
    [[nodiscard]] static tensors begin_backward(cell& now, stash_phase phase, const tensors& gradients);
    [[nodiscard]] static std::vector<cell::deferred_gradients> gradients_to_input(cell& now, const tensors& gradients,
                                                                                  tensors& arrived);
    static void finish(cell& now) {
        now.saved->close();
        now.roots.clear();
        now.entry = {};
    }
    void rehearse_operations(rehearsal& result, const tensors& inputs, storage_index how);

    const training& model_;
    const stage_module& module_;
    place place_;
    std::vector<stash_option> options_;
    stash_memory& memory_;
    stash::weight_addresses weights_{};
    at::Device device_;
    at::Tensor anchor_{};
    /// Keys of the saved tensors that W needs, per rehearsed storage option.
    std::map<storage_index, saved_keys> needed_by_weight_{};
    /// Whether the stage draws random numbers. Empty before the first rehearsal.
    std::optional<bool> draws_random_{};
};

inline stage_runner::forward_result stage_runner::forward(std::size_t step, microbatch m, const tensors& inputs,
                                                          storage_index how) {
    const at::AutoGradMode with_graph{true};
    const bool may_draw = draws_random_.value_or(true);
    std::optional<random_scope> random;
    if (may_draw) random.emplace(device_, seed(step, m));
    const auto needed = needed_by_weight_.find(how);
    auto now = std::make_unique<cell>(
        std::make_unique<stash>(memory_, weights_, options_[how].recomputed,
                                needed == needed_by_weight_.end() ? nullptr : &needed->second, may_draw));
    auto taken = inputs;
    if (!is_first()) {
        taken = stage_entry::apply(anchor_, &now->input_gradients, inputs);
        now->inputs = taken.size();
        now->input_gradients.resize(taken.size());
        for (const auto& each : taken)
            if (!now->entry && each.requires_grad()) now->entry = each.grad_fn();
    }
    const auto outputs = run_module(*now, taken, step, m);
    tensors detached;
    for (const auto& each : outputs) {
        now->roots.push_back(each.requires_grad() ? torch::autograd::impl::gradient_edge(each)
                                                  : torch::autograd::Edge{});
        detached.push_back(each.detach());
    }
    return {std::move(now), std::move(detached)};
}

inline tensors stage_runner::run_module(cell& now, const tensors& inputs, std::size_t step, microbatch m) const {
    const saving_scope scope{now.saved.get()};
    const bool is_recomputed = now.saved->recomputes("");
    auto outputs = is_recomputed ? now.saved->run_part(module_.forward, inputs) : module_.forward(inputs);
    if (!is_last()) return outputs;
    return {model_.loss(outputs, step, m)};
}

/// Removes roots that have no gradient. Returns the gradients of the remaining roots.
inline tensors stage_runner::begin_backward(cell& now, stash_phase phase, const tensors& gradients) {
    now.saved->begin(phase);
    tensors defined;
    edge_list roots;
    for (std::size_t i = 0; i < now.roots.size(); ++i)
        if (now.roots[i].is_valid() && gradients.at(i).defined()) {
            roots.push_back(now.roots[i]);
            defined.push_back(gradients[i]);
        }
    now.roots = std::move(roots);
    return defined;
}

inline tensors stage_runner::backward(cell& now, const tensors& gradients) {
    const auto defined = begin_backward(now, stash_phase::full_backward, gradients);
    execute(now.roots, defined, false, true);
    finish(now);
    return std::move(now.input_gradients);
}

inline tensors stage_runner::backward_input(cell& now, const tensors& gradients) {
    const auto defined = begin_backward(now, stash_phase::input_gradient, gradients);
    tensors arrived = defined;
    if (now.entry)
        now.deferred = gradients_to_input(now, defined, arrived);
    else
        now.deferred = {{now.roots, {}, {}}};
    auto held = now.saved->leave_for_weight(arrived);
    auto next = held.begin();
    for (auto& each : now.deferred)
        for (std::size_t i = 0; i < each.edges.size(); ++i)
            each.gradients.push_back(std::move(*next++));
    return std::move(now.input_gradients);
}

/// Computes gradients of the inputs, and of weights used in several places. Stores in `arrived` the gradients at the
/// nodes where weights branch off. The result has one edge per gradient in `arrived`, in order.
inline std::vector<cell::deferred_gradients> stage_runner::gradients_to_input(cell& now, const tensors& gradients,
                                                                              tensors& arrived) {
    auto [branches, shared] = branches_of(now.roots, now.entry.get());
    edge_list to;
    for (std::uint32_t i = 0; i < now.inputs; ++i)
        to.emplace_back(now.entry, i);
    for (const auto& weight : shared)
        to.push_back(edge_of_weight(weight));
    for (const auto& each : branches)
        for (std::uint32_t i = 0; i < each.at->num_inputs(); ++i)
            to.emplace_back(each.at, i);
    const auto found = execute(now.roots, gradients, true, false, to);
    arrived.clear();
    if (found.empty()) return {};
    std::vector<cell::deferred_gradients> deferred;
    auto next = found.begin() + static_cast<std::ptrdiff_t>(now.inputs);
    now.input_gradients.assign(found.begin(), next);
    for (auto& weight : shared)
        if (const auto& gradient = *next++; gradient.defined()) add_gradient(weight, gradient);
    for (auto& each : branches) {
        cell::deferred_gradients of_branch{{}, {}, std::move(each.weights)};
        for (std::uint32_t i = 0; i < each.at->num_inputs(); ++i)
            if (const auto& gradient = *next++; gradient.defined()) {
                of_branch.edges.emplace_back(each.at, i);
                arrived.push_back(gradient);
            }
        if (!of_branch.edges.empty()) deferred.push_back(std::move(of_branch));
    }
    return deferred;
}

inline void stage_runner::backward_weight(cell& now) {
    now.saved->begin(stash_phase::weight_gradient);
    while (!now.deferred.empty()) {
        auto last = std::move(now.deferred.back());
        now.deferred.pop_back();
        tensors gradients;
        for (auto& each : last.gradients)
            gradients.push_back(now.saved->unpack(*each));
        last.gradients.clear();
        edge_list to;
        for (const auto& weight : last.weights)
            to.push_back(edge_of_weight(weight));
        execute(last.edges, gradients, false, true, to);
    }
    finish(now);
}

/// Removes all gradients from a module while this object exists. The destructor restores the module's gradients and
/// buffers, even after an exception.
class rehearsal_scope {
public:
    explicit rehearsal_scope(const stage_module& of) : of_{of} {
        for (const auto& each : of.buffers)
            buffers_.push_back(each.clone());
        for (const auto& each : of.parameters) {
            gradients_.push_back(each.grad());
            each.mutable_grad().reset();
        }
    }
    ~rehearsal_scope() {
        const at::NoGradGuard without_graph;
        for (std::size_t i = 0; i < gradients_.size(); ++i)
            of_.parameters[i].mutable_grad() = gradients_[i];
        for (std::size_t i = 0; i < buffers_.size(); ++i)
            of_.buffers[i].copy_(buffers_[i]);
    }
    rehearsal_scope(const rehearsal_scope&) = delete;
    rehearsal_scope& operator=(const rehearsal_scope&) = delete;

private:
    const stage_module& of_;
    tensors buffers_{}, gradients_{};
};

inline rehearsal stage_runner::rehearse(const tensors& inputs, storage_index how) {
    const c10::DeviceGuard here{device_};
    const rehearsal_scope scope{module_};
    auto own = inputs;
    if (!weights_.empty()) // a stage without weights has no device of its own
        for (auto& each : own)
            each = each.to(device_);
    rehearsal result;
    rehearse_operations(result, own, how);
    return result;
}

inline void stage_runner::rehearse_operations(rehearsal& result, const tensors& inputs, storage_index how) {
    using clock = std::chrono::steady_clock;
    const auto before = memory_.device.now();
    const auto timed = [&](rehearsal::of_operation& into, const auto& work) {
        synchronize(device_);
        const auto start = clock::now();
        work();
        synchronize(device_);
        into.seconds = std::chrono::duration<double>{clock::now() - start}.count();
        into.bytes = memory_.device.now() - before;
    };
    const microbatch m{};
    forward_result done;
    if (!draws_random_) { // `forward` would reset the generator, so the module is run directly
        const random_scope random{device_, seed(0, m)};
        const auto untouched = random_state(device_);
        const at::NoGradGuard without_graph;
        auto outputs = module_.forward(inputs);
        if (is_last()) static_cast<void>(model_.loss(outputs, 0, m));
        draws_random_ = !at::equal(random_state(device_), untouched);
    }
    timed(result.forward, [&] { done = forward(0, m, inputs, how); });
    auto& now = *done.now;
    if (const auto& option = options_[how]; option.share > 0.0) {
        timed(result.offload, [&] { now.saved->move_to_host(option.share); });
        timed(result.reload, [&] { now.saved->move_to_device(); });
    }
    if (options_[how].is_ahead) timed(result.recompute, [&] { now.saved->recompute(); });
    tensors gradients;
    for (const auto& each : done.outputs)
        gradients.push_back(each.is_floating_point() ? at::ones_like(each) : at::Tensor{});
    if (model_.splits_backward) {
        timed(result.backward_input, [&] { static_cast<void>(backward_input(now, gradients)); });
        timed(result.backward_weight, [&] { backward_weight(now); });
        needed_by_weight_[how] = now.saved->used_by_weight();
    } else {
        timed(result.backward_input, [&] { static_cast<void>(backward(now, gradients)); });
    }
    result.outputs = std::move(done.outputs);
}

} // namespace optpipe::libtorch
