// The thread level with which MPI was initialised by another caller than a session.
//
//     threads (funneled | serialized | none)
#include "optpipe/execution/mpi/executor.hpp"

#include <mpi.h>

#include <chrono>
#include <iostream>
#include <string_view>

int main(int count, char** arguments) {
    using namespace std::chrono_literals;
    const std::string_view level{arguments[count - 1]};
    int given = 0;
    if (level == "funneled") MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
    if (level == "serialized") MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given);
    int status = 0;
    try {
        optpipe::mpi::member here{MPI_COMM_WORLD, {.patience = 20s}};
        here.executor().finish();
        std::cout << "runs\n";
    } catch (const optpipe::error& e) {
        std::cout << e.what() << '\n';
        status = 2;
    }
    if (level != "none") MPI_Finalize();
    return status;
}
