// Trains a transformer by a plan that keeps, offloads and recomputes stashes, and splits backwards.
//
// Four ranks have two stages of a layer each. Sizes are measured; times are those of a device with less memory than the
// stashes of 1F1B take. Gradients equal those of the model in one piece, and saved tensors take at most the plan's
// memory.
#pragma once

#include "transformer.hpp"
#include <optpipe/execution/libtorch/measure.hpp>
#include <optpipe/execution/libtorch/pipeline.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <torch/torch.h>

#include <cstddef>
#include <iostream>
#include <map>
#include <string>

namespace transformer {

using namespace optpipe;

/// Measured sizes, with the times of the device that the plan is for: a forward and each half of a backward take 1, and
/// so do a transfer and a recomputation.
inline problem problem_of(const libtorch::training& model) {
    constexpr std::size_t ranks = 4;
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

/// On CPUs, gradients have to be equal bit for bit.
inline bool is_equal(const at::Tensor& found, const at::Tensor& expected) {
    return found.is_cpu() ? at::equal(found, expected) : at::allclose(found, expected, 1e-6, 1e-12);
}

/// The exit status of the program.
template <class Pipeline> int train(const sizes& size) {
    const auto model = training_of(8, size);
    const auto p = problem_of(model);
    const auto planned = plan(p);
    if (!planned) return std::cerr << describe(planned.why()) << '\n', 1;
    // Threads on CPUs hand tensors on as they are; between GPUs, messages have bytes.
    const auto bytes = libtorch::message_bytes({at::empty({size.sequences, size.length, size.width}, size.type)});
    const auto programs = lower(p, planned->schedule, libtorch::lowering_defaults(size.device.is_cpu() ? 0 : bytes));
    if (!programs) return std::cerr << describe(programs.why()) << '\n', 1;
    std::map<std::string, std::size_t> used;
    for (const auto& each : planned->schedule.operations)
        ++used[each.op.kind == operation_kind::forward           ? std::string{storage_of(p, each.op).name.view()}
               : each.op.kind == operation_kind::backward_weight ? "split backwards"
                                                                 : "others"];
    const bool recomputes = used.contains("recompute") || used.contains("selective");
    bool is_right = recomputes && used.contains("keep") && used.contains("offload") && used.contains("split backwards");
    const auto expected = gradients_in_one_piece(model, accumulation_order_of(planned->schedule));
    Pipeline pipeline{p, *programs, model};
    tensors parameters;
    for (const auto& each : model.stages)
        parameters.insert(parameters.end(), each.parameters.begin(), each.parameters.end());
    torch::optim::Adam optimizer{parameters, torch::optim::AdamOptions{3e-3}};
    const auto first = pipeline.step();
    for (std::size_t s = 0; s < model.stages.size(); ++s)
        for (std::size_t i = 0; i < expected[s].size(); ++i)
            is_right = is_right && is_equal(model.stages[s].parameters[i].grad(), expected[s][i]);
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

} // namespace transformer
