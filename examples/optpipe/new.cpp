#include "commands.hpp"
#include "files.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json_model_config.hpp>
#include <optpipe/io/limits.hpp>
#include <optpipe/io/suggestion.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/pipeline/layer_costs.hpp>
#include <optpipe/pipeline/model_shapes.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/pipeline/transformer.hpp>
#include <optpipe/pipeline/validate_problem.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace program {
namespace {

constexpr auto all_storage =
    optpipe::storage::keep | optpipe::storage::offload | optpipe::storage::selective | optpipe::storage::full;

optpipe::decoder shape_from(const std::string& config) {
    constexpr std::size_t most_bytes = std::size_t{1} << 20U;
    const auto read = optpipe::parse_model_config(read_input(config, most_bytes), name_of(config));
    std::string names;
    for (const auto& name : read.unknown)
        names += (names.empty() ? "" : ", ") + optpipe::printable(name, 60);
    if (!names.empty()) std::cerr << "optpipe: note: " << name_of(config) << ": fields not used: " << names << '\n';
    return read.model;
}

optpipe::decoder shape_named(const std::string& name) {
    std::vector<std::string> names;
    for (const auto& each : optpipe::model_shapes::all) {
        if (each.name == name) return each.model;
        names.emplace_back(each.name);
    }
    throw optpipe::error{"--model: there is no \"" + optpipe::printable(name, 60) + "\"" +
                         optpipe::suggestion(name, names) + "; there are " + model_names()};
}

optpipe::decoder model_for(const new_options& options) {
    if (options.model.empty() && options.config.empty())
        throw optpipe::error{"new: --model or --config says which model"};
    auto m = options.config.empty() ? shape_named(options.model) : shape_from(options.config);
    if (options.sequence > 0) m.sequence = options.sequence;
    m.microbatch_size = options.microbatch_size;
    m.tensor_parallel = options.tensor_parallel;
    m.expert_parallel = options.expert_parallel;
    m.optimizer_shards = options.optimizer_shards;
    m.compute_rate = options.compute_rate;
    m.host_link_rate = options.host_link_rate;
    m.rank_link_rate = options.rank_link_rate;
    if (m.layer.is_routed() && options.expert_parallel > 1) m.expert_link_rate = options.rank_link_rate;
    return m;
}

/// Refuses groups of devices among which heads or experts can't be divided evenly.
void refuse_uneven_groups(const optpipe::decoder& model) {
    const auto refuse = [](const std::string& option, std::size_t groups, std::size_t count, const char* parts) {
        if (count % groups != 0)
            throw optpipe::error{option + ": must divide the " + std::to_string(count) + parts + ", is " +
                                 std::to_string(groups)};
    };
    refuse("--tensor-parallel", model.tensor_parallel, model.layer.heads, " heads of attention");
    if (!model.layer.is_routed() && model.expert_parallel > 1)
        throw optpipe::error{"--expert-parallel: the model has no experts; leave it out"};
    refuse("--expert-parallel", model.expert_parallel, model.layer.experts, " experts");
}

/// Refuses what readers of files refuse.
void refuse_many_microbatches(const optpipe::problem& p) {
    constexpr auto most = optpipe::detail::most_stage_microbatches;
    if (p.graph.microbatches() > most / p.graph.stages())
        throw optpipe::error{"--microbatches: " + std::to_string(p.graph.microbatches()) + " times " +
                             std::to_string(p.graph.stages()) + " stages must be at most " + std::to_string(most)};
}

/// The name of the model, or of the folder that its configuration is in.
std::string name_of_model(const new_options& options) {
    if (!options.model.empty()) return options.model;
    const auto folder = std::filesystem::path{options.config}.parent_path().filename().string();
    return folder.empty() || folder == "." || folder == ".." ? "model" : folder;
}

/// The problem of these devices, without any layers yet.
optpipe::problem devices_of(const new_options& options, const optpipe::decoder& model) {
    const auto microbatches = options.microbatches > 0 ? options.microbatches : 4 * options.ranks;
    optpipe::problem p{
        optpipe::to_any_graph(optpipe::graph<optpipe::dynamic, optpipe::dynamic>{options.ranks, microbatches}),
        optpipe::per_stage<optpipe::stage_costs>(options.ranks)};
    p.name = name_of_model(options);
    p.time_unit = optpipe::decoder::time_unit;
    p.memory_unit = optpipe::decoder::memory_unit;
    p.p2p = optpipe::hop_times<>{model.p2p()};
    p.memory_limit = optpipe::per_rank<optpipe::memory_size>(options.ranks, optpipe::memory_size{options.memory});
    return p;
}

optpipe::problem placed(const optpipe::problem& devices, const std::string& placement) {
    if (placement == "linear") return with_placement(devices, optpipe::placement::linear{});
    if (placement == "loop") return with_placement(devices, optpipe::placement::loop<>{2});
    if (placement == "v") return with_placement(devices, optpipe::placement::v{});
    throw optpipe::error{"--placement: must be linear, loop or v, is " + optpipe::printable(placement, 60)};
}

/// Refuses devices on which weights, gradients and the optimizer's state leave no room.
void refuse_full_devices(const optpipe::problem& p, double memory) {
    for (const auto r : p.graph.all_ranks())
        if (p.memory_limit[r] <= optpipe::memory_size{})
            throw optpipe::error{"new: on rank " + std::to_string(r.value()) +
                                 " weights, gradients and the optimizer's state take " +
                                 optpipe::format_number(memory - p.memory_limit[r].value(), 4) + " GB of " +
                                 optpipe::format_number(memory, 4) +
                                 "; more --ranks, --tensor-parallel or --optimizer-shards leave room"};
}

std::string problem_text(const new_options& options, const optpipe::decoder& model,
                         const std::vector<optpipe::layer_costs>& layers) {
    const auto pipeline = placed(devices_of(options, model), options.placement);
    refuse_many_microbatches(pipeline);
    const auto stages = pipeline.graph.stages();
    if (layers.size() < stages)
        throw optpipe::error{"new: " + std::to_string(stages) + " stages need a layer each; the model has " +
                             std::to_string(layers.size())};
    const optpipe::even_layers even{.total = layers.size()};
    std::vector<std::size_t> counts;
    for (const auto s : pipeline.graph.all_stages())
        counts.push_back(even.layers_of(s, stages));
    const auto p = with_layers(pipeline, layers, counts);
    refuse_full_devices(p, options.memory);
    if (auto broken = optpipe::validate(p); !broken.empty()) throw optpipe::input_error{"new", std::move(broken)};
    return optpipe::problem_to_json(p);
}

std::string layers_text(const new_options& options, const optpipe::decoder& model,
                        const std::vector<optpipe::layer_costs>& layers) {
    const optpipe::partition_problem p{layers, usual_placements(devices_of(options, model), layers.size())};
    refuse_many_microbatches(p.pipelines.back());
    if (auto broken = optpipe::validate(p); !broken.empty()) throw optpipe::input_error{"new", std::move(broken)};
    return optpipe::layers_to_json(p);
}

} // namespace

int new_problem(const new_options& options) {
    outputs files{{{"--config", options.config}}, {{"--out", options.out}}};
    const auto model = model_for(options);
    refuse_uneven_groups(model);
    const auto layers = layer_costs_of(model, model.layers, all_storage);
    files.write("--out", [&] {
        return options.layers ? layers_text(options, model, layers) : problem_text(options, model, layers);
    });
    return files.status(success);
}

std::string model_names() {
    std::string names;
    for (const auto& each : optpipe::model_shapes::all)
        names += (names.empty() ? "" : ", ") + std::string{each.name};
    return names;
}

} // namespace program
