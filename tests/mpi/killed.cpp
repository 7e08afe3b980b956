// One of the processes is killed, or stopped, in the middle of a step. The others hear of it in time and report it
// alike, except if rank 0 is the victim: then each notices for itself. The launcher must leave them alone meanwhile.
//
//     killed (kill | stop) RANK
#include "execution/offloading.hpp"
#include "mpi/support/survivors.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;

std::string run_until(int signal, rank victim, optpipe::mpi::session& session) {
    const auto fall = [&](const optpipe::operation& op) {
        if (world::self() == victim && op == forward(optpipe::stage{victim.value()}, optpipe::microbatch{4}))
            std::raise(signal);
    };
    const auto programs = offloading::programs(world::ranks());
    try {
        optpipe::mpi::member here{session, {.patience = 1500ms}};
        optpipe::testing::tracing_model model{programs[optpipe::rank{0}].stages, fall};
        optpipe::mpi::run(programs, here, model);
    } catch (const optpipe::error& e) {
        return e.what();
    }
    return "nothing wrong";
}

bool as_expected(const std::vector<std::string>& said, rank victim) {
    const auto name = std::to_string(victim.value());
    bool right = said.size() + 1 == world::ranks();
    for (const auto& text : said) {
        std::cout << text << '\n';
        const auto end = text.find("; no answer from rank " + name);
        right = right && text.rfind("rank ", 0) == 0 && end + 23 == text.size() &&
                text.find("hasn't come for it within 1500 ms") != std::string::npos;
        right = right && (victim == rank{0} || text == said[0]);
    }
    return right;
}

} // namespace

int main(int, char** arguments) {
    const int signal = std::string_view{arguments[1]} == "kill" ? SIGKILL : SIGSTOP;
    const rank victim{std::atoi(arguments[2])};
    const rank first{victim == rank{0} ? 1 : 0};
    optpipe::mpi::session session;
    auto process = static_cast<int>(getpid());
    MPI_Bcast(&process, 1, MPI_INT, static_cast<int>(victim.value()), session.world());
    auto mine = run_until(signal, victim, session);
    if (!session.has_lost_rank()) mine += "; the session doesn't know";
    const auto said = survivors::collect(mine, victim, first);
    if (world::self() != first) {
        std::this_thread::sleep_for(100ms); // a process that ends may take the others along
        return 0;
    }
    kill(process, SIGKILL);
    std::cout << (as_expected(said, victim) ? "the survivors know" : "that isn't right") << std::endl;
}
