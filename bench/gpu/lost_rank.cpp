// Two processes run steps over NCCL and sockets until one of them is killed. The other one must end with an error
// message, not much later than its patience.
//
//     gpu_lost_rank [--steps N] [--patience SECONDS] [--out PREFIX]
#include "arguments.hpp"
#include "relay.hpp"
#include "report.hpp"
#include "two_processes.hpp"
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/nccl/executor.hpp>
#include <optpipe/execution/run.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <iostream>
#include <string>

namespace {

using namespace optpipe;
using clock_type = std::chrono::steady_clock;
using relay_runner = runner<cuda::executor, relay_stage>;

/// Kills rank 1 after some steps and continues. Whether that ended well.
bool survive(relay_runner& runs, gpu_bench::two_processes& both, const gpu_bench::arguments& options,
             gpu_bench::report& out) {
    for (std::size_t i = 0; i < options.number("--steps"); ++i)
        runs.step();
    both.kill_other();
    const auto begin = clock_type::now();
    const auto passed = [&] { return std::chrono::duration<double>(clock_type::now() - begin).count(); };
    const auto patience = static_cast<double>(options.number("--patience"));
    std::string sentence = "nothing was noticed";
    bool is_well = false;
    try {
        while (passed() < 2.0 * patience) // data in transit may allow one more step
            runs.step();
    } catch (const execution_error& e) {
        sentence = e.what();
        is_well = passed() < 2.0 * patience; // including the end of work in progress
    }
    out.row({static_cast<double>(options.number("--steps")), patience, passed(), sentence});
    return is_well;
}

int run_rank(gpu_bench::two_processes& both, const gpu_bench::arguments& options) {
    if (cuda::device_count() == 0) throw error{"no GPU"};
    const rank self{both.self()};
    const auto id = both.share([] { return nccl::world_id::make(); });
    const auto programs = gpu_bench::relay_programs(2);
    nccl::member here{id, self, 2, {.patience = std::chrono::seconds{options.number("--patience")}}};
    relay_stage stage{gpu_bench::relay_microbatches, gpu_bench::relay_bytes};
    relay_runner runs{programs[self], here.executor(), stage};
    while (self == rank{1})
        runs.step(); // until it is killed
    gpu_bench::report out{options["--out"]};
    out.table("One of two processes is killed", {"after steps", "patience [s]", "the other ended after [s]", "with"});
    return survive(runs, both, options, out) ? 0 : 1;
}

} // namespace

int main(int count, char** given) try {
    const gpu_bench::arguments options{
        count, given, {{"--steps", "3"}, {"--patience", "10"}, {"--out", "gpu_lost_rank"}}};
    gpu_bench::two_processes both;
    return run_rank(both, options);
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
