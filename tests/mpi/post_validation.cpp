// Training on processes without a barrier at the optimizer's step leaves the same parameters as training without a
// pipeline, bit for bit, with overflows and with gradients that are scaled down.
#include "language_model/post_validated_training.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <vector>

using namespace std::chrono_literals;
namespace mpi = optpipe::mpi;

namespace {

void compare(const optpipe::schedule& s, const optpipe::rank_program& mine, const training::reversible_case& how) {
    const auto alone = training::train_alone(s, how);
    auto stages = training::fresh_stages(s.graph.stages());
    training::overflowing_model model{stages, s.graph.microbatches(), how.overflows};
    mpi::member here{MPI_COMM_WORLD, {.patience = 60s}};
    CHECK(training::train_rank(mine, here.executor(), here.control(), model, how) ==
          training::voids_in(s, alone, how.options));
    const auto parameters = training::parameters_of(stages);
    for (const auto at : s.graph.all_stages())
        if (s.graph.rank_of(at) == world::self()) CHECK(parameters[at.position()] == alone.parameters[at.position()]);
    const optpipe::stage last{s.graph.stages() - 1};
    if (s.graph.rank_of(last) == world::self()) CHECK(model.losses() == alone.losses);
}

/// Compares every case; if each takes many times as long, every third from the given one on.
template <class Placement, class Build> void compare_all(const Build& build, std::size_t turn) {
    const auto p = training::problem_with<Placement>(world::ranks(), world::ranks() + 2);
    const auto s = build_schedule(p, build);
    REQUIRE(s);
    const auto programs = training::updating_programs(p, *s);
    for (auto& how : training::reversible_cases(*s)) {
        if (turn++ % oracle::stride(3) != 0) continue;
        how.options.order = optpipe::execution::order_of_ends(*s);
        compare(*s, programs[world::self()], how);
    }
}

} // namespace

TEST_CASE("with a stage per process") { compare_all<optpipe::placement::linear>(optpipe::zero_bubble_h2, 0); }
TEST_CASE("with two, there and back") { compare_all<optpipe::placement::v>(optpipe::zero_bubble_v, 1); }
