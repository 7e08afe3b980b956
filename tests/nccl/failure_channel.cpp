// With a channel in addition to NCCL, every rank throws the first failure, long before its patience ends.
#include "cuda/streamed.hpp"
#include "execution/free_port.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/execution/bootstrap/tcp_control.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::bootstrap::tcp_control;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

/// No test may wait for as long as this.
constexpr auto patience = 20s;

/// Fails at one operation.
struct failing_model : streamed::model {
    failing_model(std::size_t stages, optpipe::operation at) : streamed::model{stages}, at_{at} {}
    void forward(cuda::lane& on, const optpipe::execution::forward_task& t) {
        if (optpipe::forward(t.stage, t.microbatch) == at_) throw std::runtime_error{"of the model's own"};
        streamed::model::forward(on, t);
    }

private:
    optpipe::operation at_;
};

/// Calls `run(options, rank)` for every rank, each on a thread with a channel of its own, as if it were a process.
/// Returns each rank's error.
template <class Run> std::vector<std::string> on_ranks(std::size_t ranks, const Run& run) {
    const auto port = tcp_ports::free_port();
    std::vector<std::string> said(ranks);
    std::vector<std::jthread> hosts;
    for (const rank r : optpipe::index_range<rank>{ranks})
        hosts.emplace_back([&, r] {
            try {
                tcp_control control{"127.0.0.1", port, r, ranks, patience};
                auto how = joined::options_of(r, patience);
                how.failures = &control;
                run(how, r);
            } catch (const std::exception& e) {
                said[r.position()] = e.what();
            }
        });
    hosts.clear();
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    CHECK(fake_cuda::alive() == fake_cuda::census{});
    CHECK(fake_nccl::alive() == 0);
    return said;
}
void run_steps(const optpipe::rank_program& p, cuda::executor& on, failing_model& model, int steps) {
    optpipe::runner<cuda::executor, failing_model> mine{p, on, model};
    for (int i = 0; i < steps; ++i)
        mine.step();
}
constexpr optpipe::operation nowhere = optpipe::forward(optpipe::stage{99}, optpipe::microbatch{0});

TEST_CASE("an operation that fails on one rank ends the step on all, with its sentence") {
    const auto programs = streamed::small_programs();
    for (const std::size_t bad : {0U, 1U, 2U}) {
        CAPTURE(bad);
        fake_cuda::reset();
        fake_nccl::reset();
        const auto id = nccl::world_id::make(joined::layout_for(programs));
        const auto said = on_ranks(3, [&](const cuda::options& how, rank r) {
            const auto at = r.position() == bad ? forward(optpipe::stage{bad}, optpipe::microbatch{2}) : nowhere;
            failing_model model{3, at};
            nccl::member here{id, r, 3, how};
            run_steps(programs[r], here.executor(), model, 2);
        });
        const auto name = std::to_string(bad);
        for (const auto& text : said)
            CHECK(text == "rank " + name + ", " + name + "F2: of the model's own");
    }
}

TEST_CASE("a captured step that waits for a rank which failed ends, too") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::world_id::make(joined::layout_for(programs));
    const auto said = on_ranks(3, [&](const cuda::options& how, rank r) {
        failing_model model{3, nowhere};
        nccl::member here{id, r, 3, how};
        auto& executor = here.executor();
        optpipe::runner<cuda::executor, failing_model> mine{programs[r], executor, model};
        const auto graph = executor.capture([&] { mine.issue(); });
        if (r == rank{2})
            executor.cancel("before the step", "of my own");
        else
            executor.launch(graph);
        executor.finish();
    });
    for (const auto& text : said)
        CHECK(text == "rank 2, before the step: of my own");
}

TEST_CASE("an operation that fails while its step is captured ends all ranks, with its sentence") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::world_id::make(joined::layout_for(programs));
    const auto said = on_ranks(3, [&](const cuda::options& how, rank r) {
        failing_model model{3, r == rank{2} ? forward(optpipe::stage{2}, optpipe::microbatch{2}) : nowhere};
        nccl::member here{id, r, 3, how};
        auto& executor = here.executor();
        optpipe::runner<cuda::executor, failing_model> mine{programs[r], executor, model};
        executor.launch(executor.capture([&] { mine.issue(); }));
        executor.finish();
    });
    for (const auto& text : said)
        CHECK(text == "rank 2, 2F2: of the model's own");
}

TEST_CASE("a rank that goes between two steps is one that failed") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    fake_nccl::reset();
    const auto id = nccl::world_id::make(joined::layout_for(programs));
    const auto said = on_ranks(3, [&](const cuda::options& how, rank r) {
        failing_model model{3, nowhere};
        nccl::member here{id, r, 3, how};
        run_steps(programs[r], here.executor(), model, r == rank{1} ? 1 : 2);
        if (r == rank{1}) throw std::runtime_error{"of my own"};
    });
    CHECK(said[1] == "of my own");
    for (const std::size_t r : {0U, 2U})
        CHECK(said[r] == "rank 1, outside of operations: left by an exception");
}

TEST_CASE("a rank that can't join the others tells them why") {
    const auto programs = streamed::small_programs();
    for (const auto* call : {"ncclCommInitRankConfig", "cudaStreamCreateWithPriority", "ncclGroupEnd"}) {
        CAPTURE(call);
        fake_cuda::reset({.failing_call = call});
        fake_nccl::reset({.failing_call = call});
        const auto id = nccl::world_id::make(joined::layout_for(programs));
        const auto said = on_ranks(3, [&](const cuda::options& how, rank r) {
            const nccl::member here{id, r, 3, how};
        });
        INFO(said[0]);
        CHECK(said[0].find(", joining the others: ") == 6);
        CHECK(said[0].ends_with("failed as the test wants it"));
        CHECK(said[1] == said[0]);
        CHECK(said[2] == said[0]);
    }
}

} // namespace
