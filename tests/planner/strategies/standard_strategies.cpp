#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/strategies/propagation_strategy.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>

using namespace optpipe;

namespace {

void check_against(const problem& p, const plan_result& r, double optimum) {
    CHECK(oracle::judge(p, r.schedule).valid());
    const double slack = tolerance{}.at(p.serial_time().value());
    CHECK(r.bound.value() <= optimum + slack);
    CHECK(r.objective.value() >= optimum - slack);
    if (r.why == plan_end::optimal) CHECK(r.objective.value() <= optimum + 2.0 * slack);
}

} // namespace

TEST_CASE("propagation isn't for what it couldn't be interrupted in") {
    const auto many_stages = [](std::size_t chunks) {
        const graph<dynamic, dynamic, placement::loop<>> g{4, 4, placement::loop<>{chunks}};
        return to_problem(make_problem(g, unit_memory{}));
    };
    CHECK(propagation_strategy::traits(many_stages(8)).applicable);
    CHECK_FALSE(propagation_strategy::traits(many_stages(512)).applicable);
}

TEST_CASE("plans of tiny problems are proven, and exhaustive search agrees") {
    std::size_t planned_count = 0;
    std::size_t proven = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(60); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto made =
            testing::make_random_problem(random, {.ranks = 3, .stages = 4, .microbatches = 3, .cells = 6});
        const auto best = oracle::exhaustive_optimum(made.problem, made.grid);
        if (!best.objective || !best.proven) continue;
        const auto rounds = plan(made.problem, {.threads = 2, .seed = seed});
        REQUIRE(rounds);
        check_against(made.problem, *rounds, *best.objective);
        const auto raced =
            plan(made.problem, {.time_limit = std::chrono::duration<double>{0.2}, .threads = 2, .seed = seed});
        REQUIRE(raced);
        check_against(made.problem, *raced, *best.objective);
        ++planned_count;
        proven += rounds->why == plan_end::optimal ? 1 : 0;
    }
    CHECK(planned_count >= oracle::random_cases(30));
    CHECK(10 * proven >= 9 * planned_count);
}

TEST_CASE("without a time limit all strategies together give the same plan on any number of threads") {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random, {.ranks = 3, .microbatches = 5, .cells = 20}).problem;
        const auto alone = plan(p, {.threads = 1, .seed = seed});
        const auto together = plan(p, {.threads = 2, .seed = seed});
        REQUIRE((alone && together));
        CHECK(alone->schedule.operations == together->schedule.operations);
        CHECK(alone->bound == together->bound);
        CHECK(alone->method == together->method);
    }
}

TEST_CASE("propagation that was interrupted goes on in the next call, and only then is complete") {
    random_numbers random{3};
    const auto p = testing::make_random_problem(random, {.ranks = 3, .microbatches = 5, .cells = 20}).problem;
    const propagation_strategy strategy;
    search_state state{p};
    search_limits passed;
    passed.deadline = std::chrono::steady_clock::time_point::min();
    search_state view{state, passed, "late"};
    const auto whole = propagation_bound(p, duration{});
    strategy(view, {});
    CHECK(state.bound() < whole);
    strategy(state, {});
    CHECK(state.bound() == whole);

    const propagation_strategy for_another_search = strategy;
    search_state another{p};
    for_another_search(another, {});
    CHECK(another.bound() == whole);
}
