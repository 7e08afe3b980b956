// Example 19: several pipelines that train one model, on GPUs.
//
// Example 17 with NCCL: half of the GPUs of this machine are one pipeline, and the other half are a second pipeline,
// with the same stages and other microbatches. The gradients of each stage are added to those of its replica on a
// separate communicator, independent of the pipeline's messages, while the other stages go on. There are no kernels
// here: the "gradient" of a microbatch is the input of its forward, in an entry of its own. So the gradient of a stage
// has an entry from every microbatch of both pipelines. Each GPU has its own thread. With fewer than two GPUs the
// program says so and ends.

#include <optpipe/execution.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/nccl/executor.hpp>
#include <optpipe/execution/nccl/gradient_sum.hpp>
#include <optpipe/execution/nccl/lowering.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace optpipe;
using execution::mesh_dimension;

namespace {

constexpr std::size_t microbatches = 8; // of each pipeline
constexpr std::size_t replicas = 2;
constexpr std::size_t bytes = sizeof(float);

/// The first `count` numbers of a slab.
std::span<float> numbers(std::span<std::byte> slab, std::size_t count) {
    return {reinterpret_cast<float*>(slab.data()), count};
}

/// Passes on its input, which starts from 1 in the first stage. Its gradients have an entry for each microbatch of all
/// replicas.
class relay_stage {
public:
    explicit relay_stage(nccl::gradient_sum& add_up) : add_up_{add_up} {
        const auto fresh = numbers(fresh_.memory(), all());
        for (std::size_t i = 0; i < fresh.size(); ++i)
            fresh[i] = static_cast<float>(i + 1);
    }
    void forward(cuda::lane& on, const execution::forward_task& t) {
        if (t.microbatch == microbatch{0}) clear_gradients(on);
        const auto stash = execution::contiguous(t.kept);
        if (t.input.empty())
            copy(on, stash.data(), &numbers(fresh_.memory(), all())[entry(t.microbatch)], cudaMemcpyHostToDevice);
        else
            copy(on, stash.data(), t.input.data(), cudaMemcpyDeviceToDevice);
        if (!t.output.empty()) copy(on, t.output.data(), stash.data(), cudaMemcpyDeviceToDevice);
    }
    void backward_input(cuda::lane& on, const execution::backward_task& t) {
        if (t.output.empty()) return;
        const auto from = t.input.empty() ? execution::contiguous(t.kept) : t.input;
        copy(on, t.output.data(), from.data(), cudaMemcpyDeviceToDevice);
    }
    void backward_weight(cuda::lane& on, const execution::weight_task& t) {
        copy(on, &gradients()[entry(t.microbatch)], execution::contiguous(t.kept).data(), cudaMemcpyDeviceToDevice);
    }
    void reduce(cuda::lane& on, stage) { add_up_(on, gradients()); }
    void update(cuda::lane& on, stage) {
        on.stream().copy(seen_.memory().data(), gradients().data(), gradients().size_bytes(), cudaMemcpyDeviceToHost);
    }
    /// Whether the gradients contain all microbatches of all replicas.
    [[nodiscard]] bool has_seen_all() const {
        return std::ranges::equal(numbers(seen_.memory(), all()), numbers(fresh_.memory(), all()));
    }

private:
    [[nodiscard]] static std::size_t all() { return replicas * microbatches; }
    [[nodiscard]] std::size_t entry(microbatch m) const {
        return static_cast<std::size_t>(add_up_.replica()) * microbatches + m.position();
    }
    [[nodiscard]] std::span<float> gradients() const { return numbers(gradients_.memory(), all()); }
    void clear_gradients(cuda::lane& on) const {
        cuda::check(cudaMemsetAsync(gradients().data(), 0, gradients().size_bytes(), on.stream().native()),
                    "cudaMemsetAsync");
    }
    static void copy(cuda::lane& on, void* to, const void* from, cudaMemcpyKind way) {
        on.stream().copy(to, from, bytes, way);
    }

    nccl::gradient_sum& add_up_;
    cuda::device_slab gradients_{all() * bytes};
    cuda::pinned_slab fresh_{all() * bytes};
    cuda::pinned_slab seen_{all() * bytes};
};

per_rank<rank_program> make_programs(std::size_t ranks) {
    const duration unit{1.0};
    const stage_costs each{unit, unit, unit, memory_size{1}, memory_size{1}};
    const auto p = to_problem(make_problem(graph<dynamic, microbatches>{ranks, microbatches}, uniform_memory{each}));
    const auto plan = build_schedule(p, zero_bubble_h1).value();
    auto how = nccl::lowering_defaults();
    how.bytes_per_unit = sizeof(float);
    how.message_bytes = bytes;
    how.update = how.reduce = true;
    return lower(p, plan, how).value();
}

/// Data shared by all GPUs: their places, and the ids of their groups.
struct meeting {
    explicit meeting(std::size_t gpus) : mesh{{.data = replicas, .pipeline = gpus / replicas}} {
        for (auto& each : pipelines = std::vector<nccl::world_id>(mesh.groups(mesh_dimension::pipeline)))
            each = nccl::world_id::make();
        for (auto& each : sums = std::vector<ncclUniqueId>(mesh.groups(mesh_dimension::data)))
            each = nccl::communicator::make_id();
    }
    execution::device_mesh mesh;
    std::vector<nccl::world_id> pipelines;
    std::vector<ncclUniqueId> sums;
};

/// One GPU: two steps. Returns the error, if there was one.
std::string run_gpu(std::size_t gpu, const meeting& all, const per_rank<rank_program>& programs) {
    try {
        const auto line = all.mesh.group_of(execution::world_rank{gpu}, mesh_dimension::pipeline);
        const auto column = all.mesh.group_of(execution::world_rank{gpu}, mesh_dimension::data);
        const rank self{line.self};
        nccl::member here{all.pipelines[line.number], self, line.peers.size(), {.device = static_cast<int>(gpu)}};
        nccl::gradient_sum add_up{here, all.sums[column.number], column};
        relay_stage stage{add_up};
        runner<cuda::executor, relay_stage> runs{programs[self], here.executor(), stage};
        for (int step = 0; step < 2; ++step)
            runs.step();
        return stage.has_seen_all() ? "" : "a gradient is missing";
    } catch (const std::exception& e) {
        return e.what();
    }
}

} // namespace

int main() try {
    const auto gpus = static_cast<std::size_t>(cuda::device_count()) / replicas * replicas;
    if (gpus == 0) return std::cout << "no GPU here for each of two pipelines\n", 0;
    const auto programs = make_programs(gpus / replicas);
    const meeting all{gpus};
    std::vector<std::string> errors(gpus);
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < gpus; ++i)
            threads.emplace_back([&, i] { errors[i] = run_gpu(i, all, programs); });
    }
    std::erase(errors, "");
    for (const auto& e : errors)
        std::cout << e << '\n';
    if (errors.empty())
        std::cout << replicas << " pipelines of " << gpus / replicas << " stages, gradients of "
                  << replicas * microbatches << " microbatches\n";
    return errors.empty() ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
