// Example 24: one device alone.
//
// The layers of a model are stages of a single rank, and `plan` decides which of them recompute. Often, recomputation
// is chosen by hand, with flags for the whole model. Without offloading, the choice is a knapsack, which `plan` solves
// and proves.

#include <optpipe/io/text_storage.hpp>
#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <vector>

using namespace std::chrono_literals;

int main() {
    using namespace optpipe;

    // Costs of each layer for a microbatch, here guessed from the model's shapes.
    auto model = model_shapes::llama3_8b;
    model.compute_rate = 400.0;
    const std::vector<layer_costs> layers =
        layer_costs_of(model, model.layers, storage::keep | storage::selective | storage::full);

    // Every layer is a stage of rank 0. Four microbatches are accumulated in each step.
    const placement::map<> where{per_stage<rank>(layers.size())};
    problem device{any_graph{1, 4, where}, per_stage<stage_costs>(layers.size())};
    device.memory_limit[rank{0}] = memory_size{168.0};
    device = with_layers(device, layers, std::vector<std::size_t>(layers.size(), 1));

    const auto planned = plan(device, {.time_limit = 1s});
    if (!planned) {
        std::cerr << describe(planned.why()) << '\n';
        return 1;
    }
    std::cout << "a step takes " << format_number(planned->objective.value(), 4) << " ms, "
              << (planned->why == plan_end::optimal ? "which is optimal" : "which isn't proven") << '\n';
    write_storage_uses(std::cout, device, planned->schedule);
    return planned->why == plan_end::optimal && validate(device, planned->schedule).empty() ? 0 : 1;
}
