// Gradients of replicas that are processes are added up.
#include "optpipe/execution/mpi/gradient_sum.hpp"

#include "mpi/support/world.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

template <class Real> std::vector<Real> own_gradients(std::size_t size) {
    std::vector<Real> mine(size);
    for (std::size_t i = 0; i < size; ++i)
        mine[i] = static_cast<Real>(world::self().position() + 1) * static_cast<Real>(i);
    return mine;
}
template <class Real> void check_sum(optpipe::mpi::gradient_sum& add_up, std::size_t size) {
    auto gradients = own_gradients<Real>(size);
    add_up(std::span{gradients});
    const auto processes = world::ranks();
    const auto all = static_cast<Real>(processes * (processes + 1) / 2);
    for (std::size_t i = 0; i < size; ++i)
        REQUIRE(gradients[i] == all * static_cast<Real>(i));
}

TEST_CASE("every replica has the sum of all") {
    optpipe::mpi::gradient_sum add_up{MPI_COMM_WORLD, 20s};
    CHECK(add_up.replicas() == static_cast<int>(world::ranks()));
    CHECK(add_up.replica() == static_cast<int>(world::self().value()));
    for (const std::size_t size : {0U, 1U, 7U, 4096U, 100'000U}) {
        check_sum<double>(add_up, size);
        check_sum<float>(add_up, size);
    }
}

TEST_CASE("a replica that doesn't come is waited for no longer than the patience") {
    std::string said;
    const bool first = world::self() == optpipe::rank{0};
    MPI_Barrier(MPI_COMM_WORLD);
    optpipe::mpi::gradient_sum add_up{MPI_COMM_WORLD,
                                      first ? 2'000ms : 20'000ms}; // enough for the communicator, on a busy machine
    auto gradients = own_gradients<double>(8);
    if (first) {
        try {
            add_up(std::span{gradients});
        } catch (const optpipe::mpi::timeout_error& e) {
            said = e.what();
        }
        MPI_Barrier(MPI_COMM_WORLD); // now the others join
        CHECK(said ==
              "mpi: replica 0 of " + std::to_string(world::ranks()) + " waited 2000 ms for the others' gradients");
        CHECK(gradients == own_gradients<double>(8));
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        add_up(std::span{gradients});
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

} // namespace
