// Cost of an instruction of a program on the host, on streams and as part of a graph, with kernels that take next to no
// time; compared with the same number of bare copies on the device.
//
//     gpu_overhead [--steps N] [--out PREFIX]
#include "arguments.hpp"
#include "relay.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/execution/cuda/slab.hpp>
#include <optpipe/execution/cuda/stream.hpp>
#include <optpipe/execution/run.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <memory>
#include <vector>

namespace {

using namespace optpipe;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t bytes = 256;

/// Microseconds per step: until everything is issued, and until it has finished.
struct step_times {
    double issue = 0.0;
    double all = 0.0;
};

/// The first step isn't counted.
template <class Issue, class Finish> step_times measure(std::size_t steps, const Issue& issue, const Finish& finish) {
    using microseconds = std::chrono::duration<double, std::micro>;
    step_times sum;
    for (std::size_t i = 0; i <= steps; ++i) {
        const auto begin = clock_type::now();
        issue();
        const auto issued = clock_type::now();
        finish();
        if (i == 0) continue;
        sum.issue += microseconds{issued - begin}.count();
        sum.all += microseconds{clock_type::now() - begin}.count();
    }
    const auto count = static_cast<double>(steps);
    return {sum.issue / count, sum.all / count};
}

void compare(gpu_bench::report& out, std::size_t ranks, std::size_t steps) {
    const auto programs = gpu_bench::relay_programs(ranks, bytes);
    cuda::cluster cluster{ranks, {.patience = std::chrono::seconds{10}}};
    std::vector<std::unique_ptr<relay_stage>> stages;
    std::vector<std::unique_ptr<runner<cuda::executor, relay_stage>>> runners;
    std::size_t instructions = 0;
    for (const auto& p : programs) {
        stages.push_back(std::make_unique<relay_stage>(gpu_bench::relay_microbatches, bytes));
        runners.push_back(std::make_unique<runner<cuda::executor, relay_stage>>(p, cluster[p.self], *stages.back()));
        instructions += p.instructions.size();
    }
    const auto issue = [&] {
        for (auto& each : runners)
            each->issue();
    };
    const auto finish = [&] { cluster.finish(); };
    const auto streams = measure(steps, issue, finish);
    const auto captured = cluster.capture(issue);
    const auto graph = measure(
        steps, [&] { cluster.launch(captured); }, finish);

    const cuda::device_slab room{2 * bytes};
    cuda::stream plain;
    const auto copies = measure(
        steps,
        [&] {
            for (std::size_t i = 0; i < instructions; ++i)
                plain.copy(room.memory().data() + bytes, room.memory().data(), bytes, cudaMemcpyDeviceToDevice);
        },
        [&] { plain.synchronize(); });

    const auto row = [&](const char* what, const step_times& t) {
        const auto each = static_cast<double>(instructions);
        out.row({static_cast<double>(ranks), each, what, t.issue / each, t.all / each, t.issue / copies.issue});
    };
    row("streams", streams);
    row("a graph", graph);
    row("bare copies", copies);
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--steps", "50"}, {"--out", "gpu_overhead"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("What an instruction costs", {"ranks", "instructions of a step", "by", "to issue [µs]",
                                            "of the step [µs]", "to issue, of a bare copy"});
    for (const std::size_t ranks : {2U, 4U, 8U})
        compare(out, ranks, options.number("--steps"));
    return 0;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
