// A transformer of LibTorch in stages, and the text that it is trained on.
#pragma once

#include <optpipe/core/index.hpp>
#include <optpipe/execution/libtorch/random.hpp>
#include <optpipe/execution/libtorch/training.hpp>
#include <optpipe/schedule/construct/accumulation_order.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace transformer {

using optpipe::microbatch;
using optpipe::libtorch::tensors;
namespace libtorch = optpipe::libtorch;

inline constexpr std::size_t microbatches = 8;

struct sizes {
    std::int64_t width = 32, heads = 4, vocabulary = 29, length = 48, sequences = 2;
    at::ScalarType type = at::kDouble;
    at::Device device = at::kCPU;
};

struct attention_impl : torch::nn::Module {
    explicit attention_impl(const sizes& of) : size{of} {}
    at::Tensor forward(const at::Tensor& x) {
        const auto depth = size.width / size.heads;
        const auto parts = projections->forward(x).view({size.sequences, size.length, 3, size.heads, depth}).unbind(2);
        const auto q = parts[0].transpose(1, 2);
        const auto k = parts[1].transpose(1, 2);
        const auto v = parts[2].transpose(1, 2);
        const auto mask = at::full({size.length, size.length}, -1e9, x.options()).triu(1);
        const auto scale = std::sqrt(static_cast<double>(depth));
        const auto weights = at::softmax(at::matmul(q, k.transpose(2, 3)) / scale + mask, -1);
        const auto sum = at::matmul(weights, v).transpose(1, 2);
        return output->forward(sum.reshape({size.sequences, size.length, size.width}));
    }
    sizes size;
    torch::nn::Linear projections = register_module("projections", torch::nn::Linear{size.width, 3 * size.width});
    torch::nn::Linear output = register_module("output", torch::nn::Linear{size.width, size.width});
};
TORCH_MODULE_IMPL(attention, attention_impl);

struct layer_impl : torch::nn::Module {
    explicit layer_impl(const sizes& of) : size{of} {}
    at::Tensor forward(const at::Tensor& x) {
        // The storage option "selective" recomputes this part.
        const auto y = x + libtorch::part(
                               "attention", [this](const at::Tensor& z) { return attend->forward(z); },
                               before_attention->forward(x));
        return y + feed_forward->forward(before_feed_forward->forward(y));
    }
    torch::nn::LayerNorm normalize(const std::string& name) {
        return register_module(name, torch::nn::LayerNorm{torch::nn::LayerNormOptions{{size.width}}});
    }
    sizes size;
    attention attend = register_module("attend", attention{size});
    torch::nn::LayerNorm before_attention = normalize("before_attention");
    torch::nn::LayerNorm before_feed_forward = normalize("before_feed_forward");
    torch::nn::Sequential feed_forward = register_module(
        "feed_forward", torch::nn::Sequential{torch::nn::Linear{size.width, 4 * size.width}, torch::nn::GELU{},
                                              torch::nn::Linear{4 * size.width, size.width}, torch::nn::Dropout{0.1}});
};
TORCH_MODULE_IMPL(layer, layer_impl);

/// A stage: a layer, with the embedding before the first and the logits after the last.
inline torch::nn::Sequential module_of(std::size_t s, std::size_t stages, const sizes& size) {
    torch::nn::Sequential module;
    if (s == 0) module->push_back(torch::nn::Embedding{size.vocabulary, size.width});
    module->push_back(layer{size});
    if (s + 1 == stages) module->push_back(torch::nn::Linear{size.width, size.vocabulary});
    module->to(size.device, size.type);
    return module;
}

/// Each next token follows from the one before: 3 t + 7, modulo the vocabulary.
inline at::Tensor text_of(std::size_t step, microbatch m, const sizes& size) {
    const auto first = static_cast<std::int64_t>(step * microbatches + m.position());
    auto token = (first + 11 * at::arange(size.sequences, at::TensorOptions{at::kLong}.device(size.device)));
    tensors text;
    for (std::int64_t t = 0; t <= size.length; ++t, token = 3 * token + 7)
        text.push_back(token = at::remainder(token, size.vocabulary));
    return at::stack(text, 1);
}

inline libtorch::training training_of(std::size_t stages, const sizes& size) {
    libtorch::training model;
    torch::manual_seed(1);
    for (std::size_t s = 0; s < stages; ++s)
        model.stages.push_back(libtorch::stage_of(module_of(s, stages, size)));
    model.input = [size](std::size_t step, microbatch m) {
        return tensors{text_of(step, m, size).narrow(1, 0, size.length).contiguous()};
    };
    model.loss = [size](const tensors& output, std::size_t step, microbatch m) {
        const auto target = text_of(step, m, size).narrow(1, 1, size.length).reshape({-1});
        return at::cross_entropy_loss(output.front().view({-1, size.vocabulary}), target);
    };
    model.recomputed["selective"] = {"attention"};
    return model;
}

/// The gradients of the model in one piece, added up in the order of the plan.
inline std::vector<tensors> gradients_in_one_piece(const libtorch::training& model,
                                                   const optpipe::accumulation_order& sums) {
    using optpipe::stage;
    const auto stages = model.stages.size();
    std::map<std::pair<std::size_t, microbatch>, tensors> of_microbatch;
    for (const microbatch m : sums[stage{0}]) {
        auto values = model.input(0, m);
        tensors all_parameters;
        for (std::size_t s = 0; s < stages; ++s) {
            const libtorch::random_scope random{values.front().device(),
                                                libtorch::seed_of(model, 0, stage{s}, m, microbatches)};
            values = model.stages[s].forward(values);
            const auto& own = model.stages[s].parameters;
            all_parameters.insert(all_parameters.end(), own.begin(), own.end());
        }
        const auto found =
            torch::autograd::grad({model.loss(values, 0, m) / static_cast<double>(microbatches)}, all_parameters);
        auto next = found.begin();
        for (std::size_t s = 0; s < stages; ++s) {
            const auto count = static_cast<std::ptrdiff_t>(model.stages[s].parameters.size());
            of_microbatch[{s, m}].assign(next, next + count);
            next += count;
        }
    }
    std::vector<tensors> gradients(stages);
    for (std::size_t s = 0; s < stages; ++s)
        for (const microbatch m : sums[stage{s}])
            for (std::size_t i = 0; i < model.stages[s].parameters.size(); ++i) {
                const auto& one = of_microbatch.at({s, m})[i];
                if (m == sums[stage{s}].front())
                    gradients[s].push_back(one.clone());
                else
                    gradients[s][i] += one;
            }
    return gradients;
}

} // namespace transformer
