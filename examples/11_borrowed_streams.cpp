// Example 11: inside an engine that has its own streams and communicators.
//
// The engine keeps everything: lanes put their work into the engine's streams, messages use its communicators, and
// after the run the engine has all of them back. Here each GPU of this machine is a rank, with its own thread; with one
// GPU there is one rank and no message. Without a GPU the program says so and ends.

#include "relay_stage.hpp"
#include <optpipe/execution.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/execution/nccl/executor.hpp>
#include <optpipe/execution/nccl/lowering.hpp>
#include <optpipe/pipeline/make_problem.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

constexpr std::size_t microbatches = 8;
constexpr std::size_t bytes = 1 << 20;

void must(cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error{cudaGetErrorString(status)};
}
void must(ncclResult_t status) {
    if (status != ncclSuccess) throw std::runtime_error{ncclGetErrorString(status)};
}

/// The existing engine, one for each GPU. It doesn't know OptPipe, and owns everything that it lends.
class engine {
public:
    engine(const std::array<ncclUniqueId, 2>& ids, int device, int devices) {
        must(cudaSetDevice(device));
        for (auto* each : {&compute, &copies, &messages})
            must(cudaStreamCreateWithPriority(each, cudaStreamNonBlocking, 0));
        for (std::size_t i = 0; i < 2; ++i)
            join(communicators[i], ids[i], device, devices);
    }
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;
    ~engine() {
        for (const auto each : communicators)
            if (each) static_cast<void>(ncclCommDestroy(each));
        for (const auto each : {compute, copies, messages})
            static_cast<void>(cudaStreamDestroy(each));
    }
    void abort(ncclComm_t which) noexcept {
        for (auto& each : communicators)
            if (each == which) static_cast<void>(ncclCommAbort(std::exchange(each, nullptr)));
    }

    cudaStream_t compute{}, copies{}, messages{};
    std::array<ncclComm_t, 2> communicators{};

private:
    static void join(ncclComm_t& made, ncclUniqueId id, int device, int devices) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        auto status = ncclCommInitRankConfig(&made, devices, id, device, &config);
        while (status == ncclInProgress)
            must(ncclCommGetAsyncError(made, &status));
        must(status);
    }
};

/// The streams that the engine lends to OptPipe. A rank's program has three lanes (`message_lanes::single`, one copy
/// engine).
cuda::options lend_streams(const engine& from, int device) {
    cuda::options how{.device = device};
    how.streams = [&from](rank, lane_kind kind) {
        if (kind == lane_kind::compute) return from.compute;
        return kind == lane_kind::copy ? from.copies : from.messages;
    };
    return how;
}
nccl::borrowed_communicators lend_communicators(engine& from) {
    return {from.communicators[0], from.communicators[1], [&from](ncclComm_t which) { from.abort(which); }};
}

/// One stage per rank, with room for two stashes; the others are offloaded.
per_rank<rank_program> make_programs(std::size_t ranks) {
    const duration unit{1.0};
    const stage_costs each{unit, unit, unit, memory_size{1}, memory_size{1}, transfer_times{0.5 * unit, 0.5 * unit}};
    const auto p = to_problem(
        make_problem(graph<dynamic, microbatches>{ranks, microbatches}, uniform_memory{each}, memory_size{2}));
    const auto plan = build_schedule(p, adaptive).value();
    auto how = nccl::lowering_defaults();
    how.bytes_per_unit = bytes;
    how.message_bytes = bytes;
    how.lanes = message_lanes::single;
    return lower(p, plan, how).value();
}

/// One rank: two steps on an engine's streams. Returns the error, if there was one.
std::string run_rank(const rank_program& program, const std::array<ncclUniqueId, 2>& ids) {
    try {
        const auto device = static_cast<int>(program.self.value());
        engine mine{ids, device, static_cast<int>(program.ranks)};
        relay_stage stage{microbatches, bytes};
        nccl::member here{lend_communicators(mine), lend_streams(mine, device)};
        runner<cuda::executor, relay_stage> runs{program, here.executor(), stage};
        for (int step = 0; step < 2; ++step)
            runs.step();
        return stage.has_seen_all() ? "" : "a microbatch didn't come by";
    } catch (const std::exception& e) {
        return e.what();
    }
}

} // namespace

int main() try {
    const auto devices = static_cast<std::size_t>(cuda::device_count());
    if (devices == 0) return std::cout << "no GPU here\n", 0;
    const auto programs = make_programs(devices);
    std::array<ncclUniqueId, 2> ids{};
    for (auto& id : ids)
        must(ncclGetUniqueId(&id));
    std::vector<std::string> errors(devices);
    {
        std::vector<std::jthread> ranks;
        for (const auto& each : programs)
            ranks.emplace_back([&] { errors[each.self.position()] = run_rank(each, ids); });
    }
    bool fine = true;
    for (const auto& e : errors) {
        if (!e.empty()) std::cout << e << '\n';
        fine = fine && e.empty();
    }
    if (fine) std::cout << devices << " ranks, two steps of " << microbatches << " microbatches each\n";
    return fine ? 0 : 1;
} catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 2;
}
