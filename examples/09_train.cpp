// Example 9: a model that learns.
//
// A small transformer (examples/language_model) reads this repository's README, byte by byte, on four ranks that are
// threads. It is trained twice: by 1F1B in the memory that 1F1B needs, and by a plan for half of that memory, which
// sends stashes to the host and back. The losses are bitwise the same, because all sums are the same.
//
//     example_09_train [TEXT]

#include "language_model/pipeline_model.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/optpipe.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace std::chrono_literals;
using model_type = language_model::pipeline_model<float>;

constexpr language_model::shape shape{.hidden = 32, .heads = 4, .sequence = 32, .sequences = 2};
constexpr std::size_t layers = 4;
constexpr std::size_t steps = 30;

/// Trains a new model in the order and the memory of a schedule, and returns the loss of every step.
std::vector<double> train(const problem& p, const schedule& s, const std::string& text) {
    auto stages = language_model::make_stages<float>(shape, layers, p.graph.stages(), 1);
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(float),
                                 .message_bytes = sizeof(float) * shape.boundary(),
                                 .placement = part_placement::contiguous,
                                 .update = true})
                              .value();

    threads::options how;
    how.device_memory = per_rank<std::size_t>(p.graph.ranks());
    for (const auto& each : programs)
        how.device_memory[each.self] = each.device_bytes + each.message_bytes;
    threads::cluster ranks{p.graph.ranks(), how};
    std::vector<std::unique_ptr<model_type>> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.push_back(std::make_unique<model_type>(stages, text, shape, p.graph.microbatches()));
    threads::run(
        programs, ranks, [&](rank r) -> model_type& { return *models[r.position()]; }, steps);
    return models.back()->losses();
}

} // namespace

int main(int count, char** arguments) try {
    const auto text = read_file(count > 1 ? arguments[1] : "../README.md");
    const auto stages = language_model::make_stages<float>(shape, layers, 4, 1);
    const auto roomy = problem_of(stages, to_any_graph(graph<4, 8>{}));
    auto tight = problem_of(stages, roomy.graph, duration{0.8});
    for (const rank r : tight.graph.all_ranks())
        tight.memory_limit[r] = 2.0 * tight.costs[stage{r.position()}].activation;

    const auto common = build_schedule(roomy, one_forward_one_backward);
    const auto planned = build_schedule(tight, adaptive);
    if (!common || !planned) return 1;
    const auto losses = train(roomy, *common, text);
    const auto again = train(tight, *planned, text);
    for (std::size_t k = 0; k < steps; k += 5)
        std::cout << "step " << k << ": " << losses[k] << " nats per byte\n";
    std::cout << "step " << steps - 1 << ": " << losses.back() << "; with half the memory and "
              << measure(tight, *planned).offloads << " offloaded stashes in each step: " << again.back() << '\n';
    return losses == again && losses.back() < losses.front() ? 0 : 1;
} catch (const error& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
