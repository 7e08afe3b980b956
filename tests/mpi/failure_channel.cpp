// A failure in one process is known in all at once, whichever executors they have.
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/control.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;

/// No test may wait for as long as this.
constexpr auto patience = 60s;

/// The failure that this rank hears of, long before its patience ends; empty: none.
std::string heard_on(const optpipe::mpi::control& by) {
    const auto deadline = std::chrono::steady_clock::now() + patience / 3;
    while (std::chrono::steady_clock::now() < deadline) {
        if (const auto what = by.failure()) return what->what();
        std::this_thread::yield();
    }
    return "";
}

TEST_CASE("what a rank tells, all ranks hear") {
    for (std::size_t bad = 0; bad < world::ranks(); ++bad) {
        std::string mine;
        {
            optpipe::mpi::control here{MPI_COMM_WORLD, {.patience = patience}};
            if (world::self() == rank{bad}) here.tell({rank{bad}, "2F0", "of my own"});
            mine = heard_on(here);
        }
        for (const auto& text : world::collect(mine))
            CHECK(text == "rank " + std::to_string(bad) + ", 2F0: of my own");
    }
}

TEST_CASE("so do they of one that is left by an exception") {
    const rank last{world::ranks() - 1};
    std::string mine;
    try {
        optpipe::mpi::control here{MPI_COMM_WORLD, {.patience = patience}};
        if (world::self() == last) throw std::runtime_error{"of my own"};
        mine = heard_on(here);
    } catch (const std::runtime_error& e) {
        mine = e.what();
    }
    const auto said = world::collect(mine);
    CHECK(said.back() == "of my own");
    for (std::size_t r = 0; rank{r} != last; ++r)
        CHECK(said[r] == "rank " + std::to_string(last.value()) + ", outside of operations: left by an exception");
}

TEST_CASE("a failure ends what ranks wait for on the channel, too") {
    std::string mine;
    try {
        optpipe::mpi::control here{MPI_COMM_WORLD, {.patience = patience}};
        if (world::self() == rank{1}) here.tell({rank{1}, "1F3", "of my own"});
        here.channel().begin_minimum(1); // throws if the failure is known already
        static_cast<void>(here.channel().minimum());
    } catch (const optpipe::execution_error& e) {
        mine = e.what();
    }
    for (const auto& text : world::collect(mine))
        CHECK(text == "rank 1, 1F3: of my own");
}

TEST_CASE("where nothing fails, nobody hears of anything") {
    const optpipe::mpi::control here{MPI_COMM_WORLD, {.patience = patience}};
    CHECK(!here.failure());
}

} // namespace
