#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/execution/libtorch/stage_runner.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/schedule/profile/estimate.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// The costs of a stage, in milliseconds and bytes, and its storage options. The options are keep, offload, recompute,
/// and those of `training::recomputed`.
struct measured_stage {
    stage_costs costs{};
    storage_list<false> storage{};
    /// The stage's outputs, which are the inputs of the next stage.
    tensors outputs{};
};

struct measuring_options {
    /// Number of measurements of each operation. The median of the measurements is reported.
    std::size_t repeats = 5;
};

namespace detail {

/// Rehearses a storage option several times. The resulting times are medians, and the resulting sizes are from the last
/// rehearsal.
inline rehearsal median_rehearsal(stage_runner& runner, const tensors& inputs, storage_index how, std::size_t repeats) {
    static_cast<void>(runner.rehearse(inputs, how)); // finds out what W needs
    std::vector<rehearsal> all;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, repeats); ++i)
        all.push_back(runner.rehearse(inputs, how));
    auto result = all.back();
    for (const auto kind : {&rehearsal::forward, &rehearsal::offload, &rehearsal::reload, &rehearsal::recompute,
                            &rehearsal::backward_input, &rehearsal::backward_weight}) {
        std::vector<double> seconds;
        for (const auto& each : all)
            seconds.push_back((each.*kind).seconds);
        (result.*kind).seconds = optpipe::detail::median_of(std::move(seconds));
    }
    return result;
}
/// The result is at least `least`.
[[nodiscard]] inline duration in_milliseconds(double seconds) {
    constexpr double least = 1e-6;
    return duration{std::max(least, 1e3 * seconds)};
}
[[nodiscard]] inline memory_size in_bytes(std::size_t bytes) { return memory_size{static_cast<double>(bytes)}; }

} // namespace detail

/// Measures a stage's forward, backwards, saved bytes, recomputations and transfers. The model's gradients and buffers
/// don't change.
[[nodiscard]] inline measured_stage measure_stage(const training& model, stage s, const tensors& inputs,
                                                  const measuring_options& how = {}) {
    constexpr std::size_t first_recomputed = 2; // `keep` and `offload` come first
    std::vector<std::string> names{"keep", "offload", "recompute"};
    std::vector<stash_option> options{{}, {false, 1.0, {}}, {true, 0.0, {""}}};
    for (const auto& [name, parts] : model.recomputed) {
        names.push_back(name);
        options.push_back({true, 0.0, parts});
    }
    stash_memory memory;
    stage_runner runner{model, {s, model.stages.size(), 1}, options, memory};
    std::vector<rehearsal> found;
    std::size_t activation = 0;
    std::size_t weight_stash = 0;
    for (std::size_t i = 0; i < options.size(); ++i) {
        found.push_back(detail::median_rehearsal(runner, inputs, static_cast<storage_index>(i), how.repeats));
        activation = std::max({activation, found[i].forward.bytes, found[i].recompute.bytes});
        weight_stash = std::max(weight_stash, found[i].backward_input.bytes);
    }
    using detail::in_bytes;
    using detail::in_milliseconds;
    measured_stage result;
    result.costs = {
        in_milliseconds(found[0].forward.seconds),
        in_milliseconds(found[0].backward_input.seconds),
        in_milliseconds(found[0].backward_weight.seconds),
        in_bytes(activation),
        in_bytes(weight_stash),
        transfer_times{in_milliseconds(found[1].offload.seconds), in_milliseconds(found[1].reload.seconds)}};
    result.storage = described_storage(result.costs);
    for (std::size_t i = first_recomputed; i < options.size(); ++i)
        result.storage.push_back(
            {names[i], in_bytes(found[i].forward.bytes), in_milliseconds(found[i].recompute.seconds), {}, {}, {}});
    result.outputs = std::move(found[0].outputs);
    return result;
}

/// Measures a stage that is neither the first nor the last. Only the stage's module is needed. `recomputed` has the
/// same meaning as in `training`.
[[nodiscard]] inline measured_stage measure_stage(const stage_module& module, const tensors& inputs,
                                                  std::map<std::string, std::vector<std::string>> recomputed = {},
                                                  const measuring_options& how = {}) {
    const training alone{{module, module, module}, {}, {}, std::move(recomputed)};
    return measure_stage(alone, stage{1}, inputs, how);
}

/// The problem of a model, in milliseconds and bytes, without memory limits. The stages are measured one after the
/// other.
[[nodiscard]] inline problem measured_problem(const training& model, const any_graph& shape,
                                              const measuring_options& how = {}) {
    problem p{shape, per_stage<stage_costs>(shape.stages())};
    p.time_unit = "ms";
    p.memory_unit = "B";
    p.split_backward = model.splits_backward;
    auto values = model.input(0, microbatch{});
    for (const stage s : shape.all_stages()) {
        auto measured = measure_stage(model, s, values, how);
        p.set_stage(s, measured.costs, measured.storage);
        values = std::move(measured.outputs);
    }
    return p;
}

} // namespace optpipe::libtorch
