// Work that NCCL does is also ordered wherever it uses the same memory: sends read on the rank that they leave.
#include "cuda/pipelines.hpp"
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "fakes/nccl.hpp"
#include "nccl/joined.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/nccl/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/check.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using optpipe::message_lanes;
using optpipe::per_rank;
using optpipe::rank_program;
namespace cuda = optpipe::cuda;
namespace nccl = optpipe::nccl;

namespace {

enum class issued_as { steps, graph };

/// Runs two steps, each rank on a thread and a device of its own. Returns the accesses that nothing orders, and all
/// other faults.
std::vector<std::string> races_of(const per_rank<rank_program>& programs, issued_as how,
                                  const fake_cuda::settings& on = {}) {
    auto settings = on;
    settings.log_accesses = true;
    fake_cuda::reset(settings);
    fake_nccl::reset();
    const auto id = nccl::world_id::make(joined::layout_for(programs));
    std::vector<std::string> errors(programs.size());
    std::vector<std::jthread> ranks;
    for (const auto& p : programs)
        ranks.emplace_back([&] {
            streamed::model model{p.stages};
            try {
                nccl::member here{id, p.self, programs.size(), joined::options_of(p.self, 60s)};
                auto& executor = here.executor();
                optpipe::runner<cuda::executor, streamed::model> mine{p, executor, model};
                if (how == issued_as::steps) {
                    for (int i = 0; i < 2; ++i)
                        mine.step();
                    return;
                }
                const auto step = executor.capture([&] { mine.issue(); });
                for (int i = 0; i < 2; ++i)
                    executor.launch(step);
                executor.finish();
            } catch (const optpipe::error& e) {
                errors[p.self.position()] = e.what();
            }
        });
    ranks.clear();
    CHECK(errors == std::vector<std::string>(programs.size()));
    CHECK(streamed::lines(fake_nccl::complaints()) == "");
    return fake_cuda::races();
}

TEST_CASE("programs of all builders leave nothing to chance over NCCL, nor need lanes that go on side by side") {
    const auto stride = oracle::number_from("OPTPIPE_RANDOM_CASES") > 1 ? 5U : 1U;
    std::size_t programs_seen = 0;
    std::size_t runs = 0;
    for (const auto ranks : pipelines::sizes())
        pipelines::for_each_program(
            ranks, {message_lanes::separate, message_lanes::single, message_lanes::per_direction},
            [&](const per_rank<rank_program>& programs) {
                // Each schedule has six programs, and a stride of five picks another of them each time.
                if (programs_seen++ % stride != 0) return;
                // Every second run is only in order of issue, with a queue of few places.
                const fake_cuda::settings narrow{.hardware_queues = runs % 2, .launch_queue = 4 * (runs % 2)};
                const auto how = runs / 2 % 2 == 0 ? issued_as::steps : issued_as::graph;
                CAPTURE(runs);
                CHECK(streamed::lines(races_of(programs, how, narrow)) == "");
                ++runs;
            });
    MESSAGE(runs << " runs");
    CHECK(programs_seen > 150);
}

TEST_CASE("a program with one wait less is found out over NCCL if and only if the check of programs refuses it") {
    const auto all = oracle::random_cases(60);
    std::size_t found = 0;
    optpipe::random_numbers random{9300};
    std::vector<per_rank<rank_program>> sound;
    pipelines::for_each_program(3, {message_lanes::single, message_lanes::per_direction},
                                [&](const per_rank<rank_program>& programs) { sound.push_back(programs); });
    for (std::size_t i = 0; i < all; ++i) {
        const auto programs = pipelines::without_one_wait(sound[random.below(sound.size())], random);
        const auto needed = check_programs(programs);
        const auto races = races_of(programs, issued_as::steps);
        CAPTURE(i);
        INFO((needed.empty() ? "" : needed.front().text()));
        INFO(streamed::lines(races));
        CHECK(races.empty() == needed.empty());
        found += races.empty() ? 0 : 1;
    }
    MESSAGE(found << " of " << all << " reported");
    CHECK(found > all * 3 / 4);
}

} // namespace
