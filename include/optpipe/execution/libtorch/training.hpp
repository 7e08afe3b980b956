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

/// A stage of a model: its forward, and the tensors that it owns. A forward doesn't change its inputs in place, as the
/// stage before may have saved them. Each microbatch has the same graph of operations.
struct stage_module {
    stage_function forward;
    tensors parameters{}, buffers{};
};

/// A module as a stage: a holder such as `torch::nn::Sequential`, a `torch::nn::AnyModule`, or a shared pointer. The
/// module's forward takes and returns a tensor, or `tensors`.
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

/// A model in stages, and what to train it on.
struct training {
    std::vector<stage_module> stages;
    /// The inputs of the first stage. Steps count from 0.
    std::function<tensors(std::size_t step, microbatch)> input;
    /// The loss of a microbatch, a scalar. A step minimizes the mean over the microbatches.
    std::function<at::Tensor(const tensors& output, std::size_t step, microbatch)> loss;
    /// The parts (`part`) that a storage option recomputes, by the option's name. An option that recomputes, but isn't
    /// named in this map, recomputes the whole stage.
    std::map<std::string, std::vector<std::string>> recomputed{};
    /// If false, plans may have full backwards only (`problem::split_backward`): for stages with an operation whose
    /// backward can't run once for the input and once for the weights.
    bool splits_backward = true;
    /// The random numbers of a stage, such as those of dropout, depend on this seed, the step, the stage and the
    /// microbatch, and on nothing else.
    std::uint64_t seed = 0;
};

/// The seed of a stage's random numbers for a microbatch, from `training::seed`. It doesn't depend on the plan. The
/// seeds of different trainings are far apart in 32 bits, which is all that LibTorch's generator of a CPU uses.
[[nodiscard]] inline std::uint64_t seed_of(const training& model, std::size_t step, stage s, microbatch m,
                                           std::size_t microbatches) {
    constexpr std::uint64_t distance = 0x9E37'79B1; // 2^32 divided by the golden ratio, and odd
    return model.seed * distance + (step * model.stages.size() + s.position()) * microbatches + m.position();
}

} // namespace optpipe::libtorch
