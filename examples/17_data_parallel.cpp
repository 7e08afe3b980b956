// Example 17: several pipelines that train one model.
//
// Half of the processes are one pipeline. The other half are a second pipeline, with the same stages and other
// microbatches. After the last weight gradient of a stage, the stage's gradients are added to those of its replica. The
// addition runs on a separate lane, while the other stages go on; the stage's optimizer step waits for it. Every
// process also trains the model alone, without a pipeline, and compares all gradients of all steps.
//
//     mpirun -n 4 example_17_data_parallel [TEXT]

#include "language_model/data_parallel_model.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/execution/mpi/gradient_sum.hpp>
#include <optpipe/execution/mpi/run.hpp>
#include <optpipe/optpipe.hpp>

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using execution::mesh_dimension;

constexpr language_model::shape shape{.hidden = 32, .heads = 4, .sequence = 32, .sequences = 2};
constexpr std::size_t layers = 4;
constexpr std::size_t steps = 10;
constexpr std::size_t replicas = 2;

execution::device_mesh mesh_of_world() {
    int processes = 0;
    mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &processes), "MPI_Comm_size");
    const auto size = static_cast<std::size_t>(processes);
    if (size % replicas != 0) throw error{"two pipelines need an even number of processes"};
    return execution::device_mesh{{.data = replicas, .pipeline = size / replicas}};
}
execution::world_rank self_in_world() {
    int self = 0;
    mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &self), "MPI_Comm_rank");
    return execution::world_rank{self};
}
MPI_Comm communicator_of(const execution::mesh_group& group) {
    MPI_Comm made = MPI_COMM_NULL;
    mpi::check(MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(group.number), static_cast<int>(group.self), &made),
               "MPI_Comm_split");
    return made;
}

/// The gradients of each step and stage in a single process, which uses all microbatches.
std::vector<std::vector<std::vector<double>>> gradients_alone(std::size_t stages, std::size_t microbatches,
                                                              const std::string& text) {
    auto model = language_model::make_stages<double>(shape, layers, stages, 1);
    std::vector<language_model::adamw<double>> optimizers;
    for (auto& each : model)
        optimizers.emplace_back(each.parameters().size(), language_model::adamw_rates{});
    std::vector<std::vector<std::vector<double>>> all(steps);
    for (std::size_t k = 0; k < steps; ++k) {
        unpipelined_step(model, language_model::text_step{text, shape, microbatches, k}, microbatches);
        for (std::size_t s = 0; s < stages; ++s) {
            all[k].emplace_back(model[s].gradients().begin(), model[s].gradients().end());
            optimizers[s].step(model[s].parameters(), model[s].gradients());
        }
    }
    return all;
}

/// The largest difference of any entry, relative to the largest entry.
double difference(std::span<const double> is, std::span<const double> was) {
    double largest = 0.0;
    double apart = 0.0;
    for (std::size_t i = 0; i < is.size(); ++i) {
        largest = std::max(largest, std::abs(was[i]));
        apart = std::max(apart, std::abs(is[i] - was[i]));
    }
    return apart / largest;
}

/// Combines the values of all processes.
double combined(double value, MPI_Op how) {
    mpi::check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, how, MPI_COMM_WORLD), "MPI_Allreduce");
    return value;
}

} // namespace

int main(int count, char** arguments) try {
    mpi::session session;
    const auto mesh = mesh_of_world();
    const auto self = self_in_world();
    const auto line = mesh.group_of(self, mesh_dimension::pipeline);
    const auto place = mesh.place_of(self);
    const auto text = read_file(count > 1 ? arguments[1] : "../README.md");

    const auto ranks = mesh.extents().pipeline;
    auto stages = language_model::make_stages<double>(shape, layers, ranks, 1);
    const auto p = problem_of(stages, to_any_graph(graph<dynamic, dynamic>{ranks, 2 * ranks}));
    const auto plan = build_schedule(p, zero_bubble_h1).value();
    const auto programs = lower(p, plan,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * shape.boundary(),
                                 .placement = part_placement::contiguous,
                                 .update = true,
                                 .reduce = true})
                              .value();

    const auto microbatches = p.graph.microbatches();
    const auto alone = gradients_alone(ranks, replicas * microbatches, text);
    std::size_t step = 0;
    double apart = 0.0;
    mpi::member here{communicator_of(line)};
    mpi::gradient_sum add_up{communicator_of(mesh.group_of(self, mesh_dimension::data))};
    language_model::data_parallel_model model{
        stages, text, shape, microbatches, {place.data, replicas}, [&](stage s, std::span<double> gradients) {
            add_up(gradients);
            apart = std::max(apart, difference(gradients, alone[step++][s.position()]));
        }};
    mpi::run(programs, here, model, steps);

    apart = combined(apart, MPI_MAX);
    const double first = combined(model.losses().front(), MPI_SUM);
    const double last = combined(model.losses().back(), MPI_SUM);
    const auto exposed = simulate_reductions(p, plan, per_stage<duration>(ranks, duration{1.0})).exposed;
    if (self == execution::world_rank{0})
        std::cout << replicas << " pipelines of " << ranks << " stages; gradients apart from a single process's by "
                  << apart << " at most; nats per byte: " << first << ", after " << steps << " steps: " << last
                  << "\nreductions as long as a forward would lengthen the step by " << exposed.value()
                  << " forwards\n";
    constexpr double rounding = 1e-9; // for sums in another order, over ten steps of AdamW
    return apart < rounding && last < first ? 0 : 1;
} catch (const error& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
