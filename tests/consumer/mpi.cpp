#include <optpipe/execution/mpi/session.hpp>

int main() {
    const optpipe::mpi::session mine;
    return mine.owns() ? 0 : 1;
}
