#include "optpipe/schedule/bounds/memory_area.hpp"

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <cstddef>

namespace {

using namespace optpipe;

/// Two stages on rank 0, with stashes that differ by less than the tolerance, which is large because of the stash on
/// rank 1.
problem close_stashes() {
    const stage_costs quick{duration{0.1}, duration{0.1}, duration{0.1}, memory_size{1}, {}};
    per_stage<stage_costs> costs(3, quick);
    costs[stage{0}].activation = memory_size{1.04};
    costs[stage{2}].activation = memory_size{1e5};
    per_stage<rank> ranks(3, rank{0});
    ranks[stage{2}] = rank{1};
    problem p{any_graph{2, 5, placement::map<>{ranks}}, costs};
    p.p2p = hop_times<>{duration{10}};
    p.memory_limit[rank{0}] = memory_size{2};
    return p;
}

} // namespace

TEST_CASE("the level is the largest sum, even if another sum is less than the tolerance below it") {
    const memory_size slack{0.1};
    CHECK(reachable_level({memory_size{1.04}, memory_size{1}}, memory_size{2.1}, slack).value() ==
          doctest::Approx(2.08));
    CHECK(reachable_level({memory_size{0.7}, memory_size{1}}, memory_size{2.2}, slack).value() ==
          doctest::Approx(2.1));
}

TEST_CASE("no bound is above a schedule that uses the tolerance of memory") {
    const auto p = close_stashes();
    const auto serial = simulate(p, one_at_a_time(p));
    REQUIRE(serial);
    REQUIRE(validate(p, *serial).empty());
    CHECK(bounds_of(p).best() <= objective_of(p, *serial));
}
