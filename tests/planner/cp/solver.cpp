#include "optpipe/planner/cp/solver.hpp"

#include <doctest/doctest.h>

#include <memory>

using namespace optpipe;

TEST_CASE("what becomes infeasible while a search is stopped on its way down is found so by the next call") {
    cp::model m;
    constexpr int more_than_between_looks = 100;
    for (int i = 0; i < more_than_between_looks; ++i)
        m.add_variable();
    const auto task = m.add_task(1);
    cp::solver solver{m};
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

TEST_CASE("tasks that wait for each other are a conflict, however far the deadline is") {
    cp::model m;
    const auto a = m.add_variable();
    const auto b = m.add_variable();
    const auto presence = m.add_variable();
    const auto first = m.add_task(1);
    const auto second = m.add_task(1);
    const auto optional = m.add_task(1, presence);
    m.add_difference(first, second, 1, a);
    m.add_difference(second, first, 1, b);
    const auto never_stop = [] { return false; };
    const auto solver_of = [](const cp::model& model) {
        auto made = std::make_unique<cp::solver>(model);
        for (cp::task_index t = 0; t < model.tasks.size(); ++t)
            made->at_most(t, cp::ticks{1} << 40U);
        return made;
    };
    SUBCASE("at the root") {
        m.add_clause({a});
        m.add_clause({b});
        const auto solver = solver_of(m);
        CHECK(solver->search(1, never_stop) == cp::search_status::infeasible);
    }
    SUBCASE("after decisions: what is learned names both, and no bound") {
        const auto solver = solver_of(m);
        solver->hint(a);
        solver->hint(b);
        REQUIRE(solver->search(2, never_stop) == cp::search_status::solved);
        CHECK(solver->conflicts() == 1);
        CHECK((solver->now().is_false(a) || solver->now().is_false(b)));
    }
    SUBCASE("an optional task on the cycle is absent") {
        m.add_difference(first, optional, 2);
        m.add_difference(optional, first, 0, presence);
        const auto solver = solver_of(m);
        REQUIRE(solver->search(2, never_stop) == cp::search_status::solved);
        CHECK(solver->now().is_absent(optional));
    }
    SUBCASE("without a positive sum they start together") {
        m.add_difference(second, optional, 3);
        m.add_difference(optional, second, -3, presence);
        m.add_clause({presence});
        const auto solver = solver_of(m);
        REQUIRE(solver->search(2, never_stop) == cp::search_status::solved);
        CHECK(solver->now().earliest(optional) == solver->now().earliest(second) + 3);
    }
}

TEST_CASE("what contradicts the assumptions may be feasible without them") {
    cp::model m;
    const auto a = m.add_variable();
    const auto b = m.add_variable();
    const auto c = m.add_variable();
    m.add_clause({a, b, c});
    m.add_clause({a, b, !c});
    cp::solver solver{m};
    const auto never_stop = [] { return false; };
    solver.assume({!a, !b});
    CHECK(solver.search(10, never_stop) == cp::search_status::refuted);
    solver.assume({a, !a});
    CHECK(solver.search(10, never_stop) == cp::search_status::refuted);
    solver.assume({!a});
    REQUIRE(solver.search(10, never_stop) == cp::search_status::solved);
    CHECK(solver.now().is_true(b));
    solver.assume({});
    REQUIRE(solver.search(10, never_stop) == cp::search_status::solved);
    m.add_clause({!a});
    m.add_clause({!b});
    cp::solver none{m};
    none.assume({c});
    CHECK(none.search(10, never_stop) == cp::search_status::infeasible);
}
