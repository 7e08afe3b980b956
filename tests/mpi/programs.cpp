#include "execution/peak_gate.hpp"
#include "execution/quick_adaptive.hpp"
#include "execution/random_programs.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::memory_arena;
using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::testing::tracing_model;
namespace mpi = optpipe::mpi;

constexpr std::uint64_t first_seed = 9500;

/// Exactly the memory that the program needs, and not a byte more.
mpi::options exact_memory(const rank_program& mine) {
    mpi::options how{.patience = 60s};
    how.device_memory = mine.device_bytes + mine.message_bytes;
    how.host_memory = mine.host_bytes;
    how.record_times = true;
    return how;
}

/// Runs two steps. Returns the number of weight gradients that this rank has computed.
std::size_t run_it(const optpipe::problem& p, const per_rank<rank_program>& programs, MPI_Comm among,
                   std::uint64_t seed) {
    const auto& mine = programs[world::self()];
    tracing_model model{p.graph.stages(), random_programs::jitter(seed)};
    mpi::member here{among, exact_memory(mine)};
    const auto ran = mpi::run(programs, here, model, 2);
    REQUIRE(ran.times.size() == mine.instructions.size());
    CHECK(high_water(ran, memory_arena::device) <= mine.device_bytes);
    CHECK(high_water(ran, memory_arena::host) <= mine.host_bytes);
    return model.weights();
}
/// Runs one step in which operations that free memory of the plan's peak wait until the whole peak is in use.
void run_at_the_peak(const optpipe::problem& p, const optpipe::schedule& s, const per_rank<rank_program>& programs,
                     MPI_Comm among) {
    const auto& mine = programs[world::self()];
    peak_gate gate{p, s, mine};
    tracing_model model{p.graph.stages(), [&](const optpipe::operation& op) { gate.pass(op); }};
    auto how = exact_memory(mine);
    how.copies = [&](rank, const optpipe::task_label& what, std::size_t) { return gate.pass_copy(what.op); };
    mpi::member here{among, how};
    const auto ran = mpi::run(programs, here, model);
    CHECK(high_water(ran, memory_arena::device) == mine.device_bytes);
    CHECK(high_water(ran, memory_arena::host) == mine.host_bytes);
}

TEST_CASE("random graphs, groups, slices and microbatches that differ run in no more than the memory of the plan") {
    std::size_t runs = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 16; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, {.ranks = world::ranks(),
                                                                      .stages = 2 * world::ranks(),
                                                                      .microbatches = 5,
                                                                      .cells = 5 * world::ranks(),
                                                                      .storage_percent = 40,
                                                                      .graph_percent = 100})
                           .problem;
        const auto s = build_schedule(p, quick_adaptive);
        if (!s) continue;
        const auto programs = lower(p, *s,
                                    {.bytes_per_unit = 8.0,
                                     .alignment = 1,
                                     .message_bytes = 24,
                                     .partial_bytes = 16,
                                     .lanes = static_cast<optpipe::message_lanes>(seed % 3)});
        if (!programs) continue;
        ++runs;
        const world::first_ranks among{p.graph.ranks()};
        const auto weights = among ? run_it(p, *programs, among.native(), seed) : 0;
        CHECK(world::sum(weights) == 2 * random_programs::weights_of(p));
    }
    CHECK(runs > 8);
}

TEST_CASE("programs with pairs run in no more than the memory of the plan, and plain ones in exactly that") {
    std::size_t runs = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 30; ++seed) {
        CAPTURE(seed);
        const bool is_graph = seed % 2 == 0;
        const auto p = random_programs::with_pairs(seed, world::ranks(), is_graph);
        const auto alone = build_schedule(p, quick_adaptive);
        if (!alone) continue;
        const auto s = oracle::with_all_pairs(p, *alone);
        const auto programs = random_programs::lowered(p, s, seed);
        if (!has_pairs(s.operations) || !programs) continue;
        ++runs;
        const world::first_ranks among{p.graph.ranks()};
        const auto weights = among ? run_it(p, *programs, among.native(), seed) : 0;
        CHECK(world::sum(weights) == 2 * random_programs::weights_of(p));
        if (among && !is_graph) run_at_the_peak(p, s, *programs, among.native());
    }
    if (world::self() == rank{0}) MESSAGE(runs << " runs with pairs");
    CHECK(runs > 4);
}

TEST_CASE("random programs with offloading run in exactly the memory of the plan, to the byte, whatever the timing") {
    std::size_t runs = 0;
    std::size_t offloads = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 16; ++seed) {
        CAPTURE(seed);
        const auto p = random_programs::problem(seed, world::ranks());
        const auto s = build_schedule(p, quick_adaptive);
        if (!s) continue;
        const auto programs = random_programs::lowered(p, *s, seed);
        if (!programs) continue;
        ++runs;
        offloads += measure(p, *s).offloads > 0 ? 1 : 0;
        const world::first_ranks among{p.graph.ranks()};
        const auto weights = among ? run_it(p, *programs, among.native(), seed) : 0;
        CHECK(world::sum(weights) == 2 * p.graph.cells());
        if (among) run_at_the_peak(p, *s, *programs, among.native());
    }
    if (world::self() == rank{0}) MESSAGE(runs << " runs, " << offloads << " of them with offloading");
    CHECK(runs > 10);
    CHECK(offloads > 3);
}

} // namespace
