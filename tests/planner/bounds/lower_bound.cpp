#include "optpipe/planner/bounds/lower_bound.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/planner/plan.hpp"

#include <doctest/doctest.h>

using namespace optpipe::literals;

TEST_CASE("plan knows what one rank alone needs") {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{3, 8};
    const optpipe::stage_costs each{18_ms, 18_ms, 9_ms, 1_gb, 0.5_gb, optpipe::transfer_times{27_ms, 27_ms}};
    const auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, 2_gb);
    const auto mixed = storage_mix_bound(p, strong_bounds_of(p).best());
    const auto alone = lone_rank_bound(p, mixed);
    CHECK(alone > mixed);
    CHECK(lower_bound(p) == alone);
    optpipe::plan_options quick;
    quick.without = {"adaptive", "cp", "milp", "modulo", "order-search", "rescheduling"};
    CHECK(plan(p, quick)->bound >= alone);
}
