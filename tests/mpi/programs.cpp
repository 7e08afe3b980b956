#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::memory_arena;
using optpipe::message_lanes;
using optpipe::rank;
using optpipe::testing::tracing_model;
namespace mpi = optpipe::mpi;

constexpr std::uint64_t first_seed = 9500;

/// Exactly what the program needs, and not a byte more.
mpi::options exact_memory(const optpipe::rank_program& mine) {
    mpi::options how{.patience = 60s};
    how.device_memory = mine.device_bytes + mine.message_bytes;
    how.host_memory = mine.host_bytes;
    how.record_times = true;
    return how;
}

/// Sleeps for a time that differs from operation to operation and run to run.
tracing_model::spend_time jitter(std::uint64_t seed) {
    return [seed](const optpipe::operation& op) {
        optpipe::random_numbers random{seed + 7919 * op.stage.value() + 104729 * op.microbatch.value() +
                                       static_cast<std::uint64_t>(op.kind)};
        if (random.chance(30)) std::this_thread::sleep_for(std::chrono::microseconds{random.below(200)});
    };
}

/// Weight gradients that this rank has computed in two steps.
std::size_t run_it(const optpipe::problem& p, const optpipe::schedule& s, message_lanes lanes, std::uint64_t seed) {
    const auto programs = lower(p, s, {.bytes_per_unit = 4.0, .message_bytes = 24, .lanes = lanes, .update = true});
    const world::first_ranks among{p.graph.ranks()};
    if (!programs || !among) return 0;
    const auto& mine = (*programs)[world::self().position()];
    tracing_model model{p.graph.stages(), jitter(seed)};
    mpi::member here{among.native(), exact_memory(mine)};
    const auto ran = mpi::run(*programs, here, model, 2);
    REQUIRE(ran.times.size() == mine.instructions.size());
    CHECK(high_water(ran, memory_arena::device) <= mine.device_bytes);
    CHECK(high_water(ran, memory_arena::host) <= mine.host_bytes);
    // Without transfers, the order of one lane alone decides.
    if (measure(p, s).offloads == 0) CHECK(high_water(ran, memory_arena::device) == mine.device_bytes);
    return model.weights();
}

TEST_CASE("random programs with offloading run in exactly the memory of the plan, whatever the timing") {
    const optpipe::testing::problem_ranges ranges{
        .ranks = world::ranks(), .stages = 8, .microbatches = 5, .cells = 20, .offloading_percent = 80};
    std::size_t runs = 0;
    std::size_t travels = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 16; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto lanes = static_cast<message_lanes>(seed % 3);
        const auto s = build_schedule(p, optpipe::adaptive);
        if (!s || !lower(p, *s, {.bytes_per_unit = 4.0, .message_bytes = 24, .lanes = lanes, .update = true})) continue;
        ++runs;
        travels += measure(p, *s).offloads > 0 ? 1 : 0;
        CHECK(world::sum(run_it(p, *s, lanes, seed)) == 2 * p.graph.stages() * p.graph.microbatches());
    }
    if (world::self() == rank{0}) MESSAGE(runs << " runs, " << travels << " of them with offloading");
    CHECK(runs > 10);
    CHECK(travels > 3);
}

} // namespace
