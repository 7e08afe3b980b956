// Whether a step over virtual ranks is captured as one graph on this GPU, on streams and on green contexts, and whether
// each launch delivers every microbatch.
//
//     gpu_capture [--out PREFIX]
#include "arguments.hpp"
#include "partition.hpp"
#include "relay.hpp"
#include "report.hpp"
#include <optpipe/execution/cuda/executor.hpp>
#include <optpipe/execution/run.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

/// Captures one step and launches it three times. Returns the fault; empty if there is none.
std::string capture(std::size_t ranks, bool is_divided) {
    const gpu_bench::partition parts{ranks, is_divided};
    const auto programs = gpu_bench::relay_programs(ranks);
    cuda::cluster cluster{ranks, {.patience = std::chrono::seconds{10}, .streams = parts.streams()}};
    std::vector<std::unique_ptr<relay_stage>> stages;
    std::vector<std::unique_ptr<runner<cuda::executor, relay_stage>>> runners;
    for (const auto& p : programs) {
        stages.push_back(std::make_unique<relay_stage>(gpu_bench::relay_microbatches, gpu_bench::relay_bytes));
        runners.push_back(std::make_unique<runner<cuda::executor, relay_stage>>(p, cluster[p.self], *stages.back()));
    }
    const auto step = cluster.capture([&] {
        for (auto& each : runners)
            each->issue();
    });
    for (int i = 0; i < 3; ++i)
        cluster.launch(step);
    cluster.finish();
    const bool is_well = std::ranges::all_of(stages, [](const auto& each) { return each->has_seen_all(); });
    return is_well ? "" : "a microbatch didn't come by";
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{count, given, {{"--out", "gpu_capture"}}};
    if (cuda::device_count() == 0) throw error{"no GPU"};
    gpu_bench::report out{options["--out"]};
    out.table("A step as one graph", {"ranks", "on", "result"});
    bool is_well = true;
    for (const std::size_t ranks : {2U, 4U})
        for (const bool is_divided : {false, true}) {
            std::string wrong;
            try {
                wrong = capture(ranks, is_divided);
            } catch (const std::exception& e) {
                wrong = std::string{"failed: "} + e.what();
            }
            out.row({static_cast<double>(ranks), is_divided ? "green contexts" : "streams",
                     wrong.empty() ? "captured, launched three times" : wrong});
            is_well = is_well && wrong.empty();
        }
    return is_well ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
