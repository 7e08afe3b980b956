// Work in progress when a step is given up, and errors that nobody has read.
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

/// The error of each rank's step.
std::vector<std::string> run(const optpipe::per_rank<optpipe::rank_program>& programs, const cuda::options& how) {
    cuda::cluster cluster{programs.size(), how};
    std::vector<std::string> errors(programs.size());
    std::vector<std::jthread> ranks;
    for (const auto& p : programs)
        ranks.emplace_back([&] {
            streamed::model model{p.stages};
            try {
                optpipe::runner<cuda::executor, streamed::model>{p, cluster[p.self], model}.step();
            } catch (const optpipe::execution_error& e) {
                errors[p.self.position()] = e.what();
            }
        });
    ranks.clear();
    return errors;
}

TEST_CASE("memory that a copy uses for longer than anybody waits is left to it, and the error says so") {
    for (const auto kind : {cudaMemcpyDeviceToHost, cudaMemcpyHostToDevice}) {
        CAPTURE(static_cast<int>(kind));
        fake_cuda::reset({.slow_kind = kind, .slow_number = 1, .slow_for = 24h});
        cuda::options how{.patience = 50ms};
        how.drain = 50ms;
        {
            cuda::cluster one{1, how};
            auto device = one[rank{0}].memory().device(64);
            auto host = one[rank{0}].memory().host(64);
            auto lane = one[rank{0}].open_lane(optpipe::lane_kind::copy, 4);
            const bool leaves = kind == cudaMemcpyDeviceToHost;
            const auto here = device.memory();
            const auto there = host.memory().first(64);
            const optpipe::execution::copy_piece piece{leaves ? there : here, leaves ? here : there};
            const optpipe::task_label label{
                optpipe::task_label::task_kind::operation, offload_of(optpipe::stage{1}, optpipe::microbatch{2}), {}};
            auto& copies = one[rank{0}].copies();
            if (leaves)
                copies.copy(lane, optpipe::execution::copy_direction::out, label, {&piece, 1});
            else
                copies.copy(lane, optpipe::execution::copy_direction::in, label, {&piece, 1});
            CHECK_THROWS_WITH_AS(one[rank{0}].finish(),
                                 "rank 0, 1OFFLOAD2: not over after 50 ms; as rank 0 was still at it 50 ms later, its "
                                 "memory is never freed",
                                 optpipe::execution_error);
        }
        CHECK(fake_cuda::alive().device_bytes == 64);
        CHECK(fake_cuda::alive().pinned_ranges == 1);
        fake_cuda::release();
        CHECK(streamed::lines(fake_cuda::complaints()) == "");
    }
}

TEST_CASE("memory is freed where what was given up ends after all") {
    fake_cuda::reset({.slow_kind = cudaMemcpyDeviceToHost, .slow_number = 1, .slow_for = 1s});
    for (const auto& error : run(streamed::offloading_programs(), {.patience = 100ms}))
        CHECK(error.find("not over after 100 ms") != std::string::npos);
    CHECK(streamed::lines(fake_cuda::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a launch whose status nobody looked at ends the run, with its rank and operation") {
    const optpipe::task_label label{
        optpipe::task_label::task_kind::operation, forward(optpipe::stage{2}, optpipe::microbatch{3}), {}};
    fake_cuda::reset({.failing_call = "cudaMemsetAsync", .failing_number = 2});
    cuda::cluster one{1, {.patience = 20s}};
    auto lane = one[rank{0}].open_lane(optpipe::lane_kind::compute, 4);
    const cuda::device_slab memory{64};
    for (int i = 0; i < 3; ++i)
        lane.launch(label, [begin = memory.memory().data()](cuda::lane& on) {
            static_cast<void>(cudaMemsetAsync(begin, 1, 64, on.stream().native()));
            on.stream().synchronize(); // otherwise "not ready" would be the last error
            static_cast<void>(on.stream().done()); // reading doesn't clear it
        });
    CHECK_THROWS_WITH_AS(one[rank{0}].finish(),
                         "rank 0, 2F3: a launch whose status wasn't looked at: failed as the test wants it",
                         optpipe::execution_error);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("an error from before a launch isn't blamed on it") {
    fake_cuda::reset({.failing_call = "cudaMemsetAsync"});
    cuda::cluster one{1, {.patience = 20s}};
    auto lane = one[rank{0}].open_lane(optpipe::lane_kind::compute, 4);
    static_cast<void>(cudaMemsetAsync(nullptr, 0, 0, lane.stream().native()));
    lane.launch({}, [](cuda::lane&) {});
    CHECK_THROWS_WITH(one[rank{0}].finish(),
                      "rank 0, 0F0: an error that was left before it: failed as the test wants it");
}

TEST_CASE("a launch that throws no std::exception ends the run, too") {
    fake_cuda::reset();
    cuda::cluster one{1, {.patience = 20s}};
    auto lane = one[rank{0}].open_lane(optpipe::lane_kind::compute, 4);
    lane.launch({}, [](cuda::lane&) { throw 1; });
    CHECK_THROWS_WITH_AS(one[rank{0}].finish(), "rank 0, 0F0: an exception that isn't a std::exception",
                         optpipe::execution_error);
}

TEST_CASE("the error of one rank doesn't keep a cluster from waiting for the others") {
    fake_cuda::reset({.slow_kind = cudaMemcpyDeviceToHost, .slow_number = 1, .slow_for = 300ms});
    cuda::cluster two{2, {.patience = 20s}};
    auto& other = two[rank{1}];
    const auto device = other.memory().device(64);
    const auto host = other.memory().host(64);
    auto lane = other.open_lane(optpipe::lane_kind::copy, 4);
    const optpipe::execution::copy_piece piece{host.memory().first(64), device.memory()};
    other.copies().copy(lane, optpipe::execution::copy_direction::out, {}, {&piece, 1});
    two[rank{0}].cancel("outside of operations", "of my own");
    CHECK_THROWS_WITH_AS(two.finish(), "rank 0, outside of operations: of my own", optpipe::execution_error);
    CHECK(lane.stream().done());
}

TEST_CASE("a device that can't be asked isn't said to have taken its time") {
    fake_cuda::reset();
    cuda::cluster one{1, {.patience = 20s}};
    auto lane = one[rank{0}].open_lane(optpipe::lane_kind::compute, 4);
    // A stream that is being captured answers every query with an error.
    cuda::check(cudaStreamBeginCapture(lane.stream().native(), cudaStreamCaptureModeThreadLocal),
                "cudaStreamBeginCapture");
    CHECK_THROWS_WITH_AS(one[rank{0}].finish(),
                         "rank 0, on the device: cudaStreamQuery: failed as the test wants it; as rank 0 can't tell "
                         "when its device is done, its memory is never freed",
                         optpipe::execution_error);
}

} // namespace
