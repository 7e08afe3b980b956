#include "optpipe/schedule/construct/distinct_pairs.hpp"

#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <cstddef>

using namespace optpipe;

TEST_CASE("pairs beyond the limit become single operations") {
    const auto p = pair_problem(4, 16, 5.0, true);
    const auto built = dual_pipe_v(p);
    REQUIRE(built);
    const auto all = simulate(p, *built);
    REQUIRE(all);
    REQUIRE(most_distinct_pairs(*all) == 2);
    auto before = objective_of(p, *all);
    for (const std::size_t limit : {2U, 1U, 0U}) {
        CAPTURE(limit);
        const auto fewer = with_most_distinct_pairs(p, *all, limit);
        REQUIRE(fewer);
        CHECK(is_valid(p, *fewer));
        CHECK(most_distinct_pairs(*fewer) == limit);
        CHECK(objective_of(p, *fewer) >= before);
        before = objective_of(p, *fewer);
    }
    CHECK(before.value() == doctest::Approx(99.0)); // DualPipeV whose pairs run one after the other
    CHECK(with_most_distinct_pairs(p, *all, 2)->operations == all->operations);
}
