// Example 20: which layers go to which stage.
//
// The same number of layers on each stage is often not the best: the output layer of Llama 3 8B takes 1.8 times as long
// as any other, and the first stage keeps the most stashes. `plan_partition` divides the layers so that the step
// becomes short; given several placements, it also chooses the best of them.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

using namespace std::chrono_literals;

int main() {
    using namespace optpipe;

    // Costs of each layer, here guessed from the model's shapes. Measurements use the same `layer_costs`.
    auto model = model_shapes::llama3_8b;
    model.compute_rate = 400.0;
    model.host_link_rate = 20.0;
    const std::vector<layer_costs> layers =
        layer_costs_of(model, model.layers, storage::keep | storage::offload | storage::selective);

    // Eight devices of 40 GB, with a stage each. The memory of the layers' weights is subtracted from these.
    problem pipeline{to_any_graph(graph<8, 32>{}), per_stage<stage_costs>(8)};
    pipeline.p2p = hop_times<>{model.p2p()};
    pipeline.memory_limit = per_rank<memory_size>(8, memory_size{40});

    const plan_options options{.time_limit = 3s};
    const auto even = plan(with_layers(pipeline, layers, std::vector<std::size_t>(8, 4)), options);
    const auto best = plan_partition({layers, usual_placements(pipeline, layers.size())}, options);
    if (!even || !best) {
        std::cerr << describe(even ? best.why() : even.why()) << '\n';
        return 1;
    }
    std::cout << "4 layers on each stage: " << format_number(even->objective.value(), 4) << " ms\n";
    for (const stage s : best->pipeline.graph.all_stages())
        std::cout << best->layers[s.position()] << " on rank " << best->pipeline.rank_of(s).value() << ", ";
    std::cout << "with " << format_number(best->planned.objective.value(), 4) << " ms\n";
    // `best->pipeline` and `best->planned` are a problem and its plan like any other.
    return validate(best->pipeline, best->planned.schedule).empty() ? 0 : 1;
}
