// Two pipelines of processes that share the experts of their layers.
#include "language_model/expert_training.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/control.hpp"
#include "optpipe/execution/mpi/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace mpi = optpipe::mpi;
using model = language_model::expert_model<double, optpipe::threads::control_channel>;

/// Processes of the same color.
class group {
public:
    explicit group(std::size_t color) { MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(color), 0, &among_); }
    group(const group&) = delete;
    group& operator=(const group&) = delete;
    ~group() { MPI_Comm_free(&among_); }
    [[nodiscard]] MPI_Comm native() const { return among_; }

private:
    MPI_Comm among_ = MPI_COMM_NULL;
};

/// The gradients of this process's stages after a step.
std::vector<std::vector<double>> gradients_by(const optpipe::problem& p, const optpipe::schedule& s, const group& line,
                                              const group& peers) {
    const auto programs = training::expert_programs(p, s);
    training::expert_replica own{world::self(peers.native()).position(), p.graph.stages()};
    const optpipe::rank self = world::self(line.native());
    {
        mpi::control to_peers{peers.native(), {.patience = 60s}};
        model trained{own.stages, own.layers,        training::text, training::tiny, p.graph.microbatches(),
                      own.place,  to_peers.channel()};
        mpi::member here{line.native(), {.patience = 60s}};
        static_cast<void>(mpi::run(programs, here, trained));
    }
    std::vector<std::vector<double>> all;
    for (const optpipe::stage at : p.graph.all_stages())
        if (p.rank_of(at) == self) all.push_back(own.gradients_of(at));
    return all;
}

} // namespace

TEST_CASE("with pairs, the gradients of blocks, routers and experts are those without") {
    const auto ranks = world::ranks() / training::pipelines;
    const auto self = world::self().position();
    const group line{self / ranks};
    const group peers{self % ranks};
    const auto p = training::expert_problem(ranks);
    const training::expert_schedules schedules{p};
    CHECK(gradients_by(p, schedules.paired, line, peers) == gradients_by(p, schedules.alone, line, peers));
}
