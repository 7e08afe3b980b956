#include "optpipe/execution/handover.hpp"

#include "execution/handovers.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace {

using namespace std::chrono_literals;

/// Exactly the arenas that the largest of the plans needs; no other memory is available.
optpipe::mpi::options exact_memory(const optpipe::execution::arena_sizes& room) {
    optpipe::mpi::options how{.patience = 60s};
    how.device_memory = room.device + room.message;
    how.host_memory = room.host;
    return how;
}

TEST_CASE("200 random handovers: all ranks exchange their programs between the same steps, or none does") {
    const auto wanted = oracle::random_cases(200); // fewer for the sanitizers
    const auto plans = handovers::plans(world::ranks());
    optpipe::mpi::member here{MPI_COMM_WORLD, exact_memory(handovers::room_for(plans, world::self()))};
    optpipe::testing::tracing_model model{world::ranks()};
    const auto seen = handovers::run_rank(here.executor(), here.control(), model, plans, wanted, 7);
    CHECK(seen.weights == seen.versions.size() * handovers::microbatches);
    CHECK(seen.slabs == 3);
    CHECK(seen.lanes <= handovers::most_lanes);
    if (world::self() == optpipe::rank{0}) {
        CHECK(handovers::wrong_results(seen, wanted, world::ranks()) == "");
        const auto accepted = handovers::accepted(seen);
        MESSAGE(seen.versions.size() << " steps, " << accepted << " of " << wanted << " plans accepted");
        CHECK(accepted > wanted / 4);
        CHECK(accepted < wanted);
    }
    // No step mixes two programs: every program was taken at the same step on all ranks.
    std::size_t steps = seen.versions.size();
    std::uint64_t mixed = 0;
    for (const auto version : seen.versions)
        mixed = (mixed ^ version) * 1099511628211U; // as FNV does
    const auto all = world::collect(std::to_string(steps) + " steps, " + std::to_string(mixed));
    for (const auto& own : all)
        CHECK(own == all[0]);
}

} // namespace
