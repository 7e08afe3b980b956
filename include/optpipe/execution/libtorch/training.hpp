#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/execution/libtorch/stash.hpp"

#include <ATen/ATen.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// A stage of a model: its forward, and its tensors. A forward must not change its inputs in place. All microbatches
/// must have the same graph of operations. On a GPU, a forward that draws random numbers must not run autograd, to
/// avoid a deadlock.
///
/// An output without influence on the loss has no gradient, as in the unsplit model. A missing gradient becomes zeros
/// when it comes from another rank's GPU. Weights without influence on the loss may also get gradients of zeros.
struct stage_module {
    stage_function forward;
    tensors parameters{}, buffers{};
};

/// The device of a stage's first parameter, or else of its first buffer. A stage without tensors is on the CPU.
[[nodiscard]] inline at::Device device_of(const stage_module& of) {
    for (const auto* const owned : {&of.parameters, &of.buffers})
        if (!owned->empty()) return owned->front().device();
    return at::kCPU;
}

/// Makes a stage from a module. Accepts a holder such as `torch::nn::Sequential`, a `torch::nn::AnyModule`, or a shared
/// pointer. The module's forward takes and returns a tensor, or `tensors`.
template <class Module> [[nodiscard]] stage_module stage_of(Module of) {
    const auto owned = [&](const auto& module) { return std::pair{module->parameters(), module->buffers()}; };
    auto [parameters, buffers] = [&] {
        if constexpr (requires { of.ptr(); })
            return owned(of.ptr());
        else
            return owned(of);
    }();
    stage_function forward = [of](const tensors& inputs) mutable -> tensors {
        if constexpr (requires { of.any_forward(inputs.front()); })
            return {of.forward(inputs.front())};
        else if constexpr (requires {
                               { of->forward(inputs) } -> std::same_as<tensors>;
                           })
            return of->forward(inputs);
        else
            return {of->forward(inputs.front())};
    };
    return {std::move(forward), std::move(parameters), std::move(buffers)};
}

/// A model divided into stages, with its inputs and its loss.
struct training {
    std::vector<stage_module> stages;
    /// Returns the inputs of the first stage. Steps are counted from 0.
    std::function<tensors(std::size_t step, microbatch)> input;
    /// Returns the loss of a microbatch, which is a scalar. A step minimizes the mean over the microbatches.
    std::function<at::Tensor(const tensors& output, std::size_t step, microbatch)> loss;
    /// The recomputed parts (`part`) of each storage option, by the option's name. A recomputing option that isn't in
    /// this map recomputes the entire stage.
    std::map<std::string, std::vector<std::string>> recomputed{};
    /// Whether the stages can split their backwards. False if an operation's backward can't run once for the input and
    /// once for the weights. If false, plans must have only full backwards (`problem::split_backward`).
    bool splits_backward = true;
    /// Random numbers depend only on this seed, the step, the stage and the microbatch.
    std::uint64_t seed = 0;
};

/// The seed of a stage's random numbers for a microbatch, computed from `training::seed`. The seed doesn't depend on
/// the plan. Seeds of different trainings are far apart in the lower 32 bits, which LibTorch's CPU generator uses.
[[nodiscard]] inline std::uint64_t seed_of(const training& model, std::size_t step, stage s, microbatch m,
                                           std::size_t microbatches) {
    constexpr std::uint64_t distance = 0x9E37'79B1; // 2^32 divided by the golden ratio, and odd
    return model.seed * distance + (step * model.stages.size() + s.position()) * microbatches + m.position();
}

} // namespace optpipe::libtorch
