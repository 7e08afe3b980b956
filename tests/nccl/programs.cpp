#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank_program;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

struct outcome {
    std::vector<std::string> errors;
    std::vector<std::string> complaints;
    std::size_t weights = 0;
};

/// Every rank on a thread with communicators of its own; `absent` comes and goes, but never runs its program.
outcome run(const std::vector<rank_program>& programs, std::chrono::milliseconds patience,
            std::size_t absent = static_cast<std::size_t>(-1)) {
    const auto id = nccl::world_id::make();
    outcome all{std::vector<std::string>(programs.size()), std::vector<std::string>(programs.size()), 0};
    std::mutex mutex;
    std::vector<std::jthread> ranks;
    for (std::size_t r = 0; r < programs.size(); ++r)
        ranks.emplace_back([&, r] {
            streamed::model model{programs[r].stages};
            try {
                nccl::member here{id, programs[r].self, programs.size(), {.patience = patience}};
                if (r == absent) return;
                optpipe::runner<cuda::executor, streamed::model> mine{programs[r], here.executor(), model};
                mine.step();
                mine.step();
            } catch (const optpipe::error& e) {
                all.errors[r] = e.what();
            }
            const std::scoped_lock lock{mutex};
            all.weights += model.weights();
            all.complaints[r] = model.complaint();
        });
    ranks.clear();
    return all;
}

} // namespace

TEST_CASE("programs run over NCCL as planned") {
    std::size_t runs = 0;
    streamed::for_each_program(
        10, [&](const optpipe::problem& p, const optpipe::schedule&, const auto& programs, auto seed) {
            // Neighbours in a placement of any kind may be any two ranks.
            fake_cuda::reset({.seed = seed});
            fake_nccl::reset();
            const auto all = run(programs, 20s);
            CHECK(all.errors == std::vector<std::string>(programs.size()));
            CHECK(all.complaints == std::vector<std::string>(programs.size()));
            CHECK(all.weights == 2 * p.graph.stages() * p.graph.microbatches());
            CHECK(fake_cuda::alive() == fake_cuda::census{});
            CHECK(fake_nccl::alive() == 0);
            ++runs;
        });
    CHECK(runs > 10);
}

TEST_CASE("a rank that doesn't run is missed: who waits for it says for which message, and all can end") {
    fake_cuda::reset();
    fake_nccl::reset();
    const auto all = run(streamed::small_programs(), 200ms, 1);
    INFO(all.errors[0]);
    INFO(all.errors[2]);
    CHECK(all.errors[0].find("rank 0, send of 0F0 to rank 1: ") == 0);
    CHECK(all.errors[2].find("rank 2, receive of 1F0 from rank 1: ") == 0);
    CHECK(all.errors[0].find("not over after 200 ms") != std::string::npos);
    CHECK(all.errors[1].empty());
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
}

TEST_CASE("whatever call fails, every rank comes to an end and nothing is left") {
    const auto programs = streamed::small_programs();
    for (const char* call : {"ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd", "ncclCommGetAsyncError"})
        for (const std::size_t number : {1U, 14U, 17U, 23U}) {
            CAPTURE(call);
            CAPTURE(number);
            fake_cuda::reset();
            fake_nccl::reset({.failing_call = call, .failing_number = number});
            const auto all = run(programs, 300ms);
            std::size_t told = 0;
            for (const auto& error : all.errors)
                told += error.find("failed as the test wants it") != std::string::npos ? 1 : 0;
            CHECK(told >= 1);
            CHECK(fake_cuda::alive() == fake_cuda::census{});
            CHECK(fake_nccl::alive() == 0);
        }
}
