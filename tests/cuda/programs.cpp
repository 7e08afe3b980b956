#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/cuda/graph.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
namespace cuda = optpipe::cuda;

namespace {

using cuda_runner = optpipe::runner<cuda::executor, streamed::model>;

/// The ranks of one process, and their programs.
struct setup {
    explicit setup(const per_rank<rank_program>& given, const cuda::options& how = {.patience = 20s})
        : programs{given}, cluster{given.size(), how} {
        for (const auto& p : programs) {
            models.push_back(std::make_unique<streamed::model>(p.stages));
            runners.push_back(std::make_unique<cuda_runner>(p, cluster[p.self], *models.back()));
        }
    }
    /// The error of each rank's step.
    std::vector<std::string> step(std::size_t absent = static_cast<std::size_t>(-1)) {
        std::vector<std::string> errors(runners.size());
        std::vector<std::jthread> threads;
        for (std::size_t r = 0; r < runners.size(); ++r)
            if (r != absent)
                threads.emplace_back([&, r] {
                    try {
                        runners[r]->step();
                    } catch (const optpipe::error& e) {
                        errors[r] = e.what();
                    }
                });
        threads.clear();
        return errors;
    }
    void check_results(std::size_t steps) const {
        std::size_t weights = 0;
        std::size_t reductions = 0;
        for (const auto& m : models) {
            CHECK(m->complaint() == "");
            weights += m->weights();
            reductions += m->reductions();
        }
        CHECK(weights == steps * programs[rank{0}].stages * programs[rank{0}].microbatches);
        const auto& lanes = programs[rank{0}].lanes;
        const bool reduces = std::find(lanes.begin(), lanes.end(), optpipe::lane_kind::reduce) != lanes.end();
        CHECK(reductions == (reduces ? steps * programs[rank{0}].stages : 0));
    }

    const per_rank<rank_program>& programs;
    cuda::cluster cluster;
    std::vector<std::unique_ptr<streamed::model>> models;
    std::vector<std::unique_ptr<cuda_runner>> runners;
};

} // namespace

TEST_CASE("programs run on streams as planned, whatever the streams do first, however they are issued") {
    std::size_t runs = 0;
    std::size_t pairs = 0;
    streamed::for_each_program(20,
                               [&](const optpipe::problem&, const optpipe::schedule&, const auto& programs, auto seed) {
                                   fake_cuda::reset({.seed = seed});
                                   {
                                       setup s{programs};
                                       for (const auto& error : s.step())
                                           CHECK(error == "");
                                       // One thread for all ranks, in any order: issued work never waits on the host.
                                       for (std::size_t r = s.runners.size(); r-- > 0;)
                                           s.runners[r]->issue();
                                       for (const rank r : optpipe::index_range<rank>{s.runners.size()})
                                           s.cluster[r].finish();
                                       s.check_results(2);
                                       for (const auto& m : s.models)
                                           pairs += m->pairs();
                                   }
                                   CHECK(fake_cuda::alive() == fake_cuda::census{});
                                   ++runs;
                               });
    CHECK(runs > 25);
    CHECK(pairs > 10);
}

TEST_CASE("a step is captured as one graph, all virtual ranks together, and launched again and again") {
    std::size_t runs = 0;
    streamed::for_each_program(10,
                               [&](const optpipe::problem&, const optpipe::schedule&, const auto& programs, auto seed) {
                                   fake_cuda::reset({.seed = seed});
                                   {
                                       setup s{programs};
                                       const auto step = s.cluster.capture([&] {
                                           for (auto& each : s.runners)
                                               each->issue();
                                       });
                                       for (int i = 0; i < 3; ++i) {
                                           s.cluster.launch(step);
                                           s.cluster.finish();
                                       }
                                       s.check_results(3);
                                   }
                                   CHECK(fake_cuda::alive() == fake_cuda::census{});
                                   ++runs;
                               });
    CHECK(runs > 10);
}

TEST_CASE("what really happened is a schedule of all operations") {
    streamed::for_each_program(
        3, [&](const optpipe::problem& p, const optpipe::schedule& s, const auto& programs, auto) {
            fake_cuda::reset();
            setup now{programs, {.patience = 20s, .record_times = true}};
            now.step();
            std::vector<optpipe::rank_times> times;
            for (const rank r : programs.indices())
                times.push_back({&programs[r], now.runners[r.position()]->times()});
            const auto measured = measured_schedule(p.graph, times, 1ms);
            CHECK(measured.operations.size() == s.operations.size());
            for (const auto& each : times)
                CHECK(high_water(each, optpipe::memory_arena::device) <= each.program->device_bytes);
        });
}

TEST_CASE("every call may fail at any time: all ranks say where, none hangs, nothing is left") {
    const auto programs = streamed::small_programs();
    std::size_t failures = 0;
    for (const char* call :
         {"cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaLaunchHostFunc", "cudaStreamSynchronize"})
        for (std::size_t number = 1; number < 40; number += 3) {
            fake_cuda::reset({.failing_call = call, .failing_number = number});
            {
                setup s{programs};
                const auto errors = s.step();
                const bool failed = errors[0] != "" || errors[1] != "" || errors[2] != "";
                if (!failed) continue;
                ++failures;
                const std::string reason = std::string{call} + ": failed as the test wants it";
                // Ranks that had finished have no error.
                for (const auto& error : errors)
                    CHECK((error == "" || error.find(reason) != std::string::npos));
            }
            CHECK(fake_cuda::alive() == fake_cuda::census{});
        }
    CHECK(failures > 30);
}

TEST_CASE("memory that isn't to be had is said before the first step") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset({.memory = 40});
    CHECK_THROWS_WITH_AS(setup{programs}, "rank 0, loading its program: cudaMalloc: out of memory",
                         optpipe::execution_error);
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("a rank that doesn't come is missed by those that wait for it") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    {
        setup s{programs, {.patience = 30ms}};
        const auto errors = s.step(1);
        for (const std::size_t r : {0U, 2U}) {
            INFO(errors[r]);
            CHECK(errors[r].find("its partner didn't come within 30 ms") != std::string::npos);
            CHECK(errors[r].find("rank 1") != std::string::npos);
        }
        CHECK(errors[0] == errors[2]);
    }
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("an engine's own streams are borrowed, not kept") {
    const auto programs = streamed::small_programs();
    fake_cuda::reset();
    {
        std::vector<cuda::stream> engine(3 * 16);
        const auto before = fake_cuda::alive().streams;
        {
            setup s{programs, {.patience = 20s, .streams = [&](rank r, optpipe::lane_kind kind) {
                                   return engine[16 * r.position() + static_cast<std::size_t>(kind)].native();
                               }}};
            CHECK(fake_cuda::alive().streams == before);
            CHECK(s.step() == std::vector<std::string>(3));
            s.check_results(1);
        }
        CHECK(fake_cuda::alive().streams == before);
    }
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}
