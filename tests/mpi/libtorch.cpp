// Plans of all storage options, run by LibTorch as processes, against the model in one piece.
#include "libtorch/small_pipelines.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/libtorch/executor.hpp"
#include "optpipe/execution/libtorch/pipeline_rank.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/mpi/executor.hpp"
#include "optpipe/program/lower.hpp"

#include <chrono>
#include <cstddef>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

using namespace small_pipelines;

static_assert(execution::check_executor<libtorch::executor<mpi::executor>>());

/// The model without the modules of other ranks.
libtorch::training own_part(const problem& p, libtorch::training model) {
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) != world::self()) model.stages[s.position()] = {};
    return model;
}

void run_plan(const case_of_all_options& of) {
    const auto& [model, p, plan, offloads_parts] = of;
    const auto programs = lower(p, plan, libtorch::lowering_defaults(bytes_of_message()));
    REQUIRE(programs.has_value());
    const auto own_model = own_part(p, model);
    mpi::member here{MPI_COMM_WORLD, {.patience = 60s, .record_times = true}};
    libtorch::pipeline_rank own{p, *programs, own_model, here.executor(), here.control()};
    const auto sums = accumulation_order_of(plan);
    for (std::size_t step = 0; step < 2; ++step) {
        small_model::forget_gradients(model);
        const auto expected = small_model::gradients_in_one_piece(model, sums, step);
        const auto result = own.step();
        const bool has_loss = p.rank_of(stage{p.graph.stages() - 1}) == world::self();
        CHECK(result.loss.has_value() == has_loss);
        check_order(measured_schedule(p.graph, {&result.times, 1}, 1ms), plan, world::self());
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == world::self()) check_gradients(model, s, expected);
    }
    check_report(own.report(), offloads_parts);
}

TEST_CASE("processes have the gradients, the memory and the order that were planned") {
    std::size_t cases = 0;
    for_each_case([](std::size_t ranks) { return ranks == world::ranks(); },
                  [&](const case_of_all_options& each) {
                      run_plan(each);
                      ++cases;
                  });
    CHECK(cases >= 3);
}

TEST_CASE("a stage that fails in its rehearsal ends all processes") {
    const auto shape = to_any_graph(graph<2, 4>{});
    const auto p = mixed_storage::without_options(problem_of(small_model::training_of(2), shape, false));
    const auto programs = *lower(p, *build_schedule(p, gpipe), libtorch::lowering_defaults(bytes_of_message()));
    const world::first_ranks two{2};
    if (!two) return;
    auto model = small_model::training_of(2);
    model.stages[0].forward = [](const libtorch::tensors&) -> libtorch::tensors { throw error{"no such stage"}; };
    const auto begin = [&] {
        mpi::member here{two.native(), {.patience = 20s}};
        libtorch::pipeline_rank{p, programs, own_part(p, model), here.executor(), here.control()};
    };
    if (world::self() == rank{0})
        CHECK_THROWS_WITH(begin(), "no such stage");
    else
        CHECK_THROWS_WITH(begin(), doctest::Contains("no such stage"));
}

} // namespace
