// Builders without offloading, on problems that allow it.
#include "optpipe/planner/strategies/over_memory_builders.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stop_token>
#include <utility>

using namespace optpipe;

namespace {

/// V placement with unit passes and `limit` stashes per rank; transfers take `each`.
problem v_problem(std::size_t ranks, std::size_t microbatches, double limit, double each) {
    stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    unit.transfer = transfer_times{duration{each}, duration{each}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches}),
              per_stage<stage_costs>(2 * ranks, unit)};
    for (auto& l : p.memory_limit)
        l = memory_size{limit};
    return p;
}

/// The best of the builders that don't offload.
duration best_of_builders(const problem& p) {
    auto best = duration::unlimited();
    for_each_builder([&](const auto& build) {
        if (build.name == adaptive.name) return;
        if (const auto built = build_schedule(p, build)) best = std::min(best, objective_of(p, *built));
    });
    return best;
}

} // namespace

TEST_CASE("where offloading is cheap it does better than published builders do") {
    const auto p = v_problem(4, 12, 5.0, 0.5);
    search_state state{p};
    over_memory_strategy{}(state, {.effort = 20'000'000});
    REQUIRE(state.incumbent());
    CHECK(is_valid(p, *state.incumbent()));
    CHECK(state.objective() < best_of_builders(p));
}

TEST_CASE("the same effort finds the same; more finds nothing worse; none finds nothing") {
    const auto p = v_problem(3, 8, 4.0, 0.5);
    const auto found = [&](std::size_t effort) {
        search_state state{p};
        over_memory_strategy{}(state, {.effort = effort});
        return state.objective();
    };
    CHECK(found(0).is_unlimited());
    CHECK(found(2'000'000) == found(2'000'000));
    const auto most = found(20'000'000);
    CHECK(most <= found(200'000));
    CHECK_FALSE(most.is_unlimited());
}

TEST_CASE("random problems: what is offered is valid") {
    random_numbers random{1};
    std::size_t found = 0;
    for (std::size_t i = 0; i < oracle::random_cases(150); ++i) {
        CAPTURE(i);
        const auto p = testing::make_random_problem(
                           random, {.ranks = 4, .microbatches = 8, .cells = 40, .offloading_percent = 100})
                           .problem;
        if (!over_memory_strategy::traits(p).applicable) continue;
        search_state state{p};
        over_memory_strategy{}(state, {.effort = 100'000});
        if (!state.incumbent()) continue;
        ++found;
        CHECK(is_valid(p, *state.incumbent()));
    }
    CHECK(found > oracle::random_cases(30));
}

TEST_CASE("only with offloading and limited memory") {
    auto p = v_problem(2, 4, 3.0, 1.0);
    CHECK(over_memory_strategy::traits(p).applicable);
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    CHECK_FALSE(over_memory_strategy::traits(p).applicable);
    p = v_problem(2, 4, 3.0, 1.0);
    p.change_stages([&](auto& c) { c.transfer = {}; });
    CHECK_FALSE(over_memory_strategy::traits(p).applicable);
}

TEST_CASE("a stopped search for transfers has made one attempt") {
    const auto p = v_problem(4, 12, 3.0, 2.0);
    const cell_flags may_offload(p.graph.cells(), static_cast<unsigned char>(1));
    const auto computations = order_of(*build_schedule(detail::without_limits(p), zero_bubble_v));
    detail::offload_search<any_graph> whole{p, may_offload};
    whole.run(computations);
    detail::offload_search<any_graph> stopped{p, may_offload};
    const stop_when at_once{[] { return true; }};
    stopped.run(computations, at_once);
    CHECK(stopped.spent() > 0);
    CHECK(2 * stopped.spent() < whole.spent());
    CHECK(whole.value() <= stopped.value());
    CHECK(std::move(stopped).take().operations.size() >= computations.operations.size());
}

TEST_CASE("an abandoned search for transfers makes none") {
    const auto p = v_problem(4, 12, 3.0, 2.0);
    const cell_flags may_offload(p.graph.cells(), static_cast<unsigned char>(1));
    const auto computations = order_of(*build_schedule(detail::without_limits(p), zero_bubble_v));
    std::stop_source source;
    source.request_stop();
    const auto token = source.get_token();
    detail::offload_search<any_graph> abandoned{p, may_offload};
    abandoned.run(computations, {}, stop_check{token});
    CHECK(abandoned.spent() == 0);
    CHECK(abandoned.value().is_unlimited());
    const auto built = pipe_offload(p, stop_check{token});
    REQUIRE_FALSE(built);
    CHECK(built.why().reason == was_stopped().reason);
}
