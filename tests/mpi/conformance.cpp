#include "optpipe/testing/conformance.hpp"

#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace std::chrono_literals;

TEST_CASE("processes keep to the concepts") {
    for (const bool by_cancel : {false, true}) {
        CAPTURE(by_cancel);
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        std::string faults;
        for (const auto& each : optpipe::testing::check_executor(here.executor(), {.by_cancel = by_cancel}))
            faults += each.text() + '\n';
        CHECK(faults == "");
    }
}

TEST_CASE("so does one that is alone") {
    optpipe::mpi::member here{MPI_COMM_SELF, {.patience = 20s}};
    CHECK(here.executor().ranks() == 1);
    CHECK(optpipe::testing::check_executor(here.executor()).empty());
}
