#include "optpipe/testing/control_channel.hpp"

#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;

TEST_CASE("processes keep to the concept") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        std::string faults;
        for (const auto& each : optpipe::testing::check_control_channel(here.control(), {.rounds = 30, .seed = seed}))
            faults += each.text() + '\n';
        CHECK(faults == "");
    }
}

TEST_CASE("so does one that is alone") {
    optpipe::mpi::member here{MPI_COMM_SELF, {.patience = 20s}};
    CHECK(optpipe::testing::check_control_channel(here.control()).empty());
}

TEST_CASE("texts that nobody reads don't keep ranks from leaving") {
    for (int i = 0; i < 3; ++i) {
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        here.control().report(std::string(1 << 20, 'x'));
        if (world::self() == rank{0}) here.control().publish(std::string(1 << 20, 'y'));
        here.executor().finish();
    }
}

TEST_CASE("nor does a minimum that nobody reads") {
    for (int i = 0; i < 20; ++i) {
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        here.control().begin_minimum(1);
        here.executor().finish();
    }
}

TEST_CASE("a rank that doesn't come is named, and ends what the others' executors do") {
    std::string mine;
    try {
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 2'000ms}};
        const rank last{world::ranks() - 1};
        if (world::self() != last) {
            here.control().begin_minimum(1);
            static_cast<void>(here.control().minimum());
        }
        while (true) { // until it hears of the failure
            here.executor().finish();
            static_cast<void>(here.control().next_published());
        }
    } catch (const optpipe::execution_error& e) {
        mine = e.what();
    }
    const auto name = std::to_string(world::ranks() - 1);
    for (const auto& text : world::collect(mine))
        CHECK(text == "rank 0, a minimum of all ranks: rank " + name + " hasn't come for it within 2000 ms");
}

} // namespace
