#pragma once

#include "libtorch/torch_and_doctest.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/libtorch/random.hpp"
#include "optpipe/execution/libtorch/stash.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/schedule/construct/accumulation_order.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

/// Stages that are small, but save tensors of all kinds.
namespace small_model {

using optpipe::microbatch;
using optpipe::stage;
using optpipe::libtorch::tensors;

inline constexpr std::int64_t samples = 6, width = 12;

struct stage_impl : torch::nn::Module {
    explicit stage_impl(bool shares_weights) : shares{shares_weights} {
        register_module("first", first);
        register_module("second", second);
        register_module("normalize", normalize);
    }
    at::Tensor forward(const at::Tensor& x) {
        const auto y = at::tanh(first->forward(x));
        const auto inner = [this](const at::Tensor& z) {
            return at::dropout(at::gelu(second->forward(normalize->forward(z))), 0.2, true);
        };
        const auto z = y + optpipe::libtorch::part("inner", inner, y);
        return shares ? at::tanh(first->forward(z)) : z;
    }
    bool shares;
    torch::nn::Linear first{width, width}, second{width, width};
    torch::nn::LayerNorm normalize{torch::nn::LayerNormOptions{{width}}};
};

inline at::Tensor input_of(std::size_t step, microbatch m, at::Device on = at::kCPU) {
    const auto first = static_cast<double>(1 + step * 31 + m.position());
    const auto numbers = at::arange(samples * width, at::TensorOptions{at::kDouble}.device(on));
    return at::sin(first * numbers).view({samples, width});
}

inline optpipe::libtorch::training training_of(std::size_t stages, bool shares_weights = false,
                                               at::Device on = at::kCPU) {
    torch::manual_seed(5);
    optpipe::libtorch::training model;
    for (std::size_t s = 0; s < stages; ++s) {
        auto module = std::make_shared<stage_impl>(shares_weights);
        module->to(on, at::kDouble);
        model.stages.push_back(optpipe::libtorch::stage_of(std::move(module)));
    }
    model.input = [on](std::size_t step, microbatch m) { return tensors{input_of(step, m, on)}; };
    model.loss = [on](const tensors& output, std::size_t step, microbatch m) {
        return at::mse_loss(output.front(), input_of(step + 1, m, on));
    };
    model.recomputed["selective"] = {"inner"};
    model.seed = 11;
    return model;
}

/// The gradients of a step without a pipeline: by stage, added up in this order.
inline std::vector<tensors> gradients_in_one_piece(const optpipe::libtorch::training& model,
                                                   const optpipe::accumulation_order& sums, std::size_t step) {
    const auto stages = model.stages.size();
    const auto count = sums[stage{0}].size();
    std::map<std::pair<std::size_t, microbatch>, tensors> found;
    for (const microbatch m : sums[stage{0}]) {
        auto values = model.input(step, m);
        for (std::size_t s = 0; s < stages; ++s) {
            const auto seed = optpipe::libtorch::seed_of(model, step, stage{s}, m, count);
            const optpipe::libtorch::random_scope random{values.front().device(), seed};
            values = model.stages[s].forward(values);
        }
        const auto loss = model.loss(values, step, m) / static_cast<double>(count);
        for (std::size_t s = 0; s < stages; ++s)
            found[{s, m}] = torch::autograd::grad({loss}, model.stages[s].parameters, {}, true);
    }
    std::vector<tensors> gradients(stages);
    for (std::size_t s = 0; s < stages; ++s)
        for (const microbatch m : sums[stage{s}])
            for (std::size_t i = 0; i < model.stages[s].parameters.size(); ++i)
                if (const auto& one = found.at({s, m})[i]; m == sums[stage{s}].front())
                    gradients[s].push_back(one.clone());
                else
                    gradients[s][i] += one;
    return gradients;
}

inline void forget_gradients(const optpipe::libtorch::training& model) {
    for (const auto& each : model.stages)
        for (const auto& parameter : each.parameters)
            parameter.mutable_grad().reset();
}

} // namespace small_model
