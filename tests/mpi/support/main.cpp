// The main of tests that are several processes: all run the same cases in the same order. Rank 0 reports; failures on
// other ranks are printed with their rank. All exit alike, with 1 if any check of any rank has failed.
#include "optpipe/execution/mpi/session.hpp"

#include <iostream>
#include <sstream>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int count, char** arguments) {
    const optpipe::mpi::session session;
    int rank = 0;
    MPI_Comm_rank(session.world(), &rank);
    std::ostringstream report;
    doctest::Context context{count, arguments};
    if (rank != 0) context.setCout(&report);
    const int failed = context.run();
    if (rank != 0 && failed) std::cerr << "rank " << rank << ":\n" << report.str();
    int failed_somewhere = 0;
    MPI_Allreduce(&failed, &failed_somewhere, 1, MPI_INT, MPI_MAX, session.world());
    return failed_somewhere;
}
