// A transformer of LibTorch, trained by a plan that keeps, offloads and recomputes stashes, and splits backwards.
//
// Four ranks, which are threads, have two stages of a layer each. Sizes are measured; times are those of a device with
// less memory than the stashes of 1F1B take. Gradients equal those of the model in one piece bit for bit, and saved
// tensors take at most the plan's memory.

#include <optpipe/execution/libtorch/measure.hpp>
#include <optpipe/execution/libtorch/pipeline.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using libtorch::tensors;

constexpr std::int64_t width = 32, heads = 4, vocabulary = 29, length = 48, sequences = 2;
constexpr std::size_t ranks = 4, microbatches = 8;

struct attention_impl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
        const auto parts = projections->forward(x).view({sequences, length, 3, heads, width / heads}).unbind(2);
        const auto q = parts[0].transpose(1, 2);
        const auto k = parts[1].transpose(1, 2);
        const auto v = parts[2].transpose(1, 2);
        const auto mask = at::full({length, length}, -1e9, x.options()).triu(1);
        const auto weights = at::softmax(at::matmul(q, k.transpose(2, 3)) / std::sqrt(width / heads) + mask, -1);
        return output->forward(at::matmul(weights, v).transpose(1, 2).reshape({sequences, length, width}));
    }
    torch::nn::Linear projections = register_module("projections", torch::nn::Linear{width, 3 * width});
    torch::nn::Linear output = register_module("output", torch::nn::Linear{width, width});
};
TORCH_MODULE_IMPL(attention, attention_impl);

struct layer_impl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
        // The storage option "selective" recomputes this part.
        const auto y = x + libtorch::part(
                               "attention", [this](const at::Tensor& z) { return attend->forward(z); },
                               before_attention->forward(x));
        return y + feed_forward->forward(before_feed_forward->forward(y));
    }
    torch::nn::LayerNorm normalize(const std::string& name) {
        return register_module(name, torch::nn::LayerNorm{torch::nn::LayerNormOptions{{width}}});
    }
    attention attend = register_module("attend", attention{});
    torch::nn::LayerNorm before_attention = normalize("before_attention");
    torch::nn::LayerNorm before_feed_forward = normalize("before_feed_forward");
    torch::nn::Sequential feed_forward = register_module(
        "feed_forward", torch::nn::Sequential{torch::nn::Linear{width, 4 * width}, torch::nn::GELU{},
                                              torch::nn::Linear{4 * width, width}, torch::nn::Dropout{0.1}});
};
TORCH_MODULE_IMPL(layer, layer_impl);

/// A stage: a layer, with the embedding before the first and the logits after the last.
torch::nn::Sequential module_of(std::size_t s, std::size_t stages) {
    torch::nn::Sequential module;
    if (s == 0) module->push_back(torch::nn::Embedding{vocabulary, width});
    module->push_back(layer{});
    if (s + 1 == stages) module->push_back(torch::nn::Linear{width, vocabulary});
    module->to(at::kDouble);
    return module;
}

/// Each next token follows from the one before.
at::Tensor text_of(std::size_t step, microbatch m) {
    const auto first = static_cast<std::int64_t>(step * microbatches + m.position());
    auto text = at::empty({sequences, length + 1}, at::kLong);
    for (std::int64_t s = 0; s < sequences; ++s)
        for (std::int64_t t = 0, token = (first + 11 * s) % vocabulary; t <= length;
             ++t, token = (3 * token + 7) % vocabulary)
            text[s][t] = token;
    return text;
}

libtorch::training training_of(std::size_t stages) {
    libtorch::training model;
    torch::manual_seed(1);
    for (std::size_t s = 0; s < stages; ++s)
        model.stages.push_back(libtorch::stage_of(module_of(s, stages)));
    model.input = [](std::size_t step, microbatch m) {
        return tensors{text_of(step, m).narrow(1, 0, length).contiguous()};
    };
    model.loss = [](const tensors& output, std::size_t step, microbatch m) {
        const auto target = text_of(step, m).narrow(1, 1, length).reshape({-1});
        return at::cross_entropy_loss(output.front().view({-1, vocabulary}), target);
    };
    model.recomputed["selective"] = {"attention"};
    return model;
}

/// Measured sizes, with the times of the device that the plan is for: a forward and each half of a backward take 1, and
/// so do a transfer and a recomputation.
problem problem_of(const libtorch::training& model) {
    auto p = libtorch::measured_problem(model, to_any_graph(graph<ranks, microbatches, placement::loop<2>>{}));
    const duration one{1.0};
    for (const stage s : p.graph.all_stages()) {
        auto options = p.storage[s];
        for (auto& each : options) {
            if (each.offloads()) each.transfer = transfer_times{one, one};
            if (each.recomputes()) each.recompute = (each.name == "selective" ? 0.4 : 1.0) * one;
        }
        auto costs = p.costs[s];
        costs.forward = costs.backward_input = costs.backward_weight = one;
        p.set_stage(s, costs, options);
    }
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = 3.5 * p.costs[stage{ranks}].activation;
    return p;
}

/// The gradients of the model in one piece, added up in the order of the plan.
std::vector<tensors> gradients_in_one_piece(const libtorch::training& model, const accumulation_order& sums) {
    const auto stages = model.stages.size();
    std::map<std::pair<std::size_t, microbatch>, tensors> of_microbatch;
    for (const microbatch m : sums[stage{0}]) {
        auto values = model.input(0, m);
        tensors all_parameters;
        for (std::size_t s = 0; s < stages; ++s) {
            const libtorch::random_scope random{at::kCPU, libtorch::seed_of(model, 0, stage{s}, m, microbatches)};
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

} // namespace

int main() {
    at::set_num_threads(1);
    const auto model = training_of(2 * ranks);
    const auto p = problem_of(model);
    const auto planned = plan(p);
    if (!planned) return std::cerr << describe(planned.why()) << '\n', 1;
    const auto programs = lower(p, planned->schedule, libtorch::lowering_defaults());
    if (!programs) return std::cerr << describe(programs.why()) << '\n', 1;
    std::map<std::string, std::size_t> used;
    for (const auto& each : planned->schedule.operations)
        ++used[each.op.kind == operation_kind::forward           ? std::string{storage_of(p, each.op).name.view()}
               : each.op.kind == operation_kind::backward_weight ? "split backwards"
                                                                 : "others"];
    const bool recomputes = used.contains("recompute") || used.contains("selective");
    bool is_right = recomputes && used.contains("keep") && used.contains("offload") && used.contains("split backwards");
    const auto expected = gradients_in_one_piece(model, accumulation_order_of(planned->schedule));
    libtorch::pipeline pipeline{p, *programs, model};
    tensors parameters;
    for (const auto& each : model.stages)
        parameters.insert(parameters.end(), each.parameters.begin(), each.parameters.end());
    torch::optim::Adam optimizer{parameters, torch::optim::AdamOptions{3e-3}};
    const auto first = pipeline.step();
    for (std::size_t s = 0; s < model.stages.size(); ++s)
        for (std::size_t i = 0; i < expected[s].size(); ++i)
            is_right = is_right && at::equal(model.stages[s].parameters[i].grad(), expected[s][i]);
    double loss = first.loss;
    for (std::size_t n = 0; n < 5; ++n) {
        optimizer.step();
        optimizer.zero_grad();
        loss = pipeline.step().loss;
    }
    const auto report = pipeline.report();
    for (const auto& [what, count] : used)
        std::cout << what << ": " << count << ", ";
    std::cout << "\n"
              << describe(report) << "loss " << first.loss << ", then " << loss << "; gradients are "
              << (is_right ? "" : "NOT ") << "those of the model in one piece\n";
    for (const auto& each : report.ranks)
        is_right = is_right && each.device.measured <= each.device.planned + each.device.planned / 50;
    return is_right && loss < first.loss ? 0 : 1;
}
