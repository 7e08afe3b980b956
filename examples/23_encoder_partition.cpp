// Example 23: an encoder in front of a language model, divided among devices of different speed.
//
// Layers form a graph: a frozen vision encoder and the embedding of the text both feed the language model.
// `plan_partition` decides which layers share a stage, also layers of different branches, and gives slower devices less
// work.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

using namespace optpipe::literals;
using namespace std::chrono_literals;

int main() {
    using namespace optpipe;

    // Layers are numbered so that each comes after those that feed it; layers without a backward come first.
    constexpr std::size_t vision_layers = 6, projector = vision_layers, text = projector + 1, first = text + 1,
                          all = 18;
    const layer_costs frozen{
        .costs = {.forward = 3_ms, .activation = 0.2_gb, .weight_stash = 0_gb, .gradients = gradient_kind::none},
        .static_memory = 1_gb};
    const layer_costs small{
        .costs = {.forward = 1_ms, .backward_input = 1_ms, .backward_weight = 1_ms, .activation = 0.1_gb},
        .static_memory = 1_gb};
    const layer_costs block{
        .costs = {.forward = 5_ms, .backward_input = 6_ms, .backward_weight = 4_ms, .activation = 0.5_gb},
        .static_memory = 3_gb};
    partition_problem model;
    model.layers.assign(vision_layers, frozen);
    model.layers.resize(first, small);
    model.layers.resize(all, block);

    model.edges = {{projector, first}, {text, first}};
    for (std::size_t layer = 0; layer + 1 < all; ++layer)
        if (layer < projector || layer >= first) model.edges->push_back({layer, layer + 1});

    // The projector stays with the encoder's last layer, texts arrive at device 1, and two devices have half the speed.
    model.together = {{vision_layers - 1, projector}};
    model.pins = {{text, rank{1}}};
    model.rank_speed = {1.0, 1.0, 0.5, 0.5};
    problem devices{to_any_graph(graph<dynamic, dynamic>{4, 16}), per_stage<stage_costs>(4)};
    devices.p2p = hop_times<>{0.5_ms};
    devices.memory_limit = per_rank<memory_size>(4, 40_gb);
    model.pipelines = usual_placements(devices, all);

    const auto best = plan_partition(model, {.time_limit = 3s});
    if (!best) {
        std::cerr << describe(best.why()) << '\n';
        return 1;
    }
    for (const stage s : best->pipeline.graph.all_stages()) {
        std::cout << "stage " << s.value() << " on rank " << best->pipeline.rank_of(s).value() << ": layers";
        for (std::size_t layer = 0; layer < all; ++layer)
            if (best->stage_of[layer] == s) std::cout << ' ' << layer;
        std::cout << '\n';
    }
    std::cout << "step of " << format_number(best->planned.objective.value(), 4) << " ms, no partition has one below "
              << format_number(best->bound.value(), 4) << " ms\n";
    return validate(best->pipeline, best->planned.schedule).empty() ? 0 : 1;
}
