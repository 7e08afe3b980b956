// Example 10: the model of example 9, on processes.
//
// Each rank is a process with its stages; MPI carries activations and gradients. The lanes are threads, as in example
// 8, so that messages and stashes move while the rank computes. All processes make the same plan, because it depends
// only on the problem, and rank 0 prints the losses.
//
//     mpirun -n 4 example_10_train_mpi [TEXT]

#include "language_model/pipeline_model.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/execution/mpi/run.hpp>
#include <optpipe/optpipe.hpp>

#include <mpi.h>

#include <cstddef>
#include <iostream>
#include <string>

namespace {

using namespace optpipe;

constexpr language_model::shape shape{.hidden = 32, .heads = 4, .sequence = 32, .sequences = 2};
constexpr std::size_t steps = 30;

/// Distributes the value of the last rank to all ranks.
double from_last(double value, std::size_t ranks) {
    mpi::check(MPI_Bcast(&value, 1, MPI_DOUBLE, static_cast<int>(ranks) - 1, MPI_COMM_WORLD), "MPI_Bcast");
    return value;
}

} // namespace

int main(int count, char** arguments) try {
    mpi::session session; // or the engine's own MPI_Init_thread, and `member` on one of its communicators
    mpi::member here{session};
    auto& executor = here.executor();
    const auto text = read_file(count > 1 ? arguments[1] : "../README.md");

    // One stage per process, in half the memory that 1F1B needs: some stashes have to be offloaded.
    const graph<dynamic, dynamic> line{executor.ranks(), 2 * executor.ranks()};
    auto stages = language_model::make_stages<float>(shape, 8, executor.ranks(), 1);
    auto p = problem_of(stages, to_any_graph(line), duration{0.8});
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = 0.5 * static_cast<double>(executor.ranks()) * p.costs[stage{r.position()}].activation;
    const auto planned = build_schedule(p, adaptive).value();
    const auto programs = lower(p, planned,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(float),
                                 .message_bytes = sizeof(float) * shape.boundary(),
                                 .placement = part_placement::contiguous,
                                 .update = true})
                              .value();

    language_model::pipeline_model<float> model{stages, text, shape, p.graph.microbatches()};
    mpi::run(programs, here, model, steps);
    const double first = from_last(model.losses().front(), executor.ranks());
    const double last = from_last(model.losses().back(), executor.ranks());
    if (executor.self() == rank{0})
        std::cout << executor.ranks() << " processes, " << measure(p, planned).offloads
                  << " offloaded stashes in each step; nats per byte: " << first << ", after " << steps
                  << " steps: " << last << '\n';
    return last < first ? 0 : 1;
} catch (const error& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
