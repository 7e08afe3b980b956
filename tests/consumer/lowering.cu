#include <optpipe/execution.hpp>
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/execution/cuda/graph.hpp>
#include <optpipe/execution/cuda/green_contexts.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/program.hpp>
#include <optpipe/schedule.hpp>

// A user's CUDA source with OptPipe: stages with their own kernels, a schedule that is lowered and, if there is a GPU,
// a step of it on two virtual ranks.

#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

using namespace optpipe;

namespace {

__global__ void add_to(std::byte* to, const std::byte* from, std::size_t bytes, unsigned char what) {
    const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < bytes) to[i] = std::byte(static_cast<unsigned char>(from ? from[i] : std::byte{}) + what);
}

struct adding_stage {
    void forward(cuda::lane& on, const execution::forward_task& t) {
        add(on, execution::contiguous(t.kept), t.input, t.output);
    }
    void backward_input(cuda::lane& on, const execution::backward_task& t) {
        add(on, execution::contiguous(t.kept), t.input, t.output);
    }
    void backward_weight(cuda::lane&, const execution::weight_task&) { ++weights; }
    std::size_t weights = 0;

private:
    static void add(cuda::lane& on, std::span<std::byte> stash, std::span<const std::byte> in,
                    std::span<std::byte> out) {
        for (const auto to : {stash, out})
            if (!to.empty())
                add_to<<<1, 64, 0, on.stream().native()>>>(to.data(), in.empty() ? nullptr : in.data(), to.size(), 1);
    }
};
static_assert(execution::check_stage_model<adding_stage, cuda::lane>());

} // namespace

int main() {
    const stage_costs each{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{2}, memory_size{2}, {}};
    const auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{each}));
    const auto programs =
        lower(p, *build_schedule(p, one_forward_one_backward), {.bytes_per_unit = 32, .message_bytes = 64});
    if (!programs || !check_programs(*programs).empty()) return 1;
    if (cuda::device_count() == 0) return std::puts("lowered; no GPU to run it on"), 0;
    cuda::cluster ranks{2};
    std::vector<adding_stage> stages(2);
    std::vector<std::unique_ptr<runner<cuda::executor, adding_stage>>> runners;
    for (const auto& each_program : *programs)
        runners.push_back(std::make_unique<runner<cuda::executor, adding_stage>>(each_program, ranks[each_program.self],
                                                                                 stages[each_program.self.position()]));
    for (auto& one : runners)
        one->issue();
    for (const rank r : p.graph.all_ranks())
        ranks[r].finish();
    return stages[0].weights + stages[1].weights == 8 ? 0 : 1;
}
