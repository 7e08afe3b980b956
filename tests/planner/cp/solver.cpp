#include "optpipe/planner/cp/solver.hpp"

#include <doctest/doctest.h>

using namespace optpipe;

TEST_CASE("what becomes infeasible while a search is stopped on its way down is found so by the next call") {
    cp::model m;
    constexpr int more_than_between_looks = 100;
    for (int i = 0; i < more_than_between_looks; ++i)
        m.add_variable();
    const auto task = m.add_task(1);
    cp::solver<> solver{m};
    solver.at_least(task, 3);
    int looks = 0;
    REQUIRE(solver.search(1, [&] { return looks++ > 0; }) == cp::search_status::stopped);
    REQUIRE(solver.now().level() > 0);
    SUBCASE("infeasible") {
        solver.at_most(task, 2);
        CHECK(solver.search(1, [] { return false; }) == cp::search_status::infeasible);
    }
    SUBCASE("feasible") {
        solver.at_most(task, 4);
        CHECK(solver.search(1, [] { return false; }) == cp::search_status::solved);
        CHECK(solver.now().latest(task) == 4);
    }
}
