#include "optpipe/online/step_planner.hpp"

#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/carry_over.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem draw(random_numbers& random, std::size_t microbatches) {
    const stage_costs cost{duration{2.0}, duration{3.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}};
    auto p = to_problem(make_problem(graph<dynamic, dynamic>{4, microbatches}, uniform_memory{cost}, memory_size{6.0}));
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < microbatches; ++m) {
        const double length = 0.5 + random.share();
        factors.push_back({length, length, length, length, length});
    }
    p.microbatches.set_factors(factors);
    return p;
}

/// No time: what the plan before gives.
background_options at_once() {
    background_options how;
    how.how.time_limit = std::chrono::duration<double>{0.0};
    return how;
}

} // namespace

TEST_CASE("each step's plan starts from the plan of the step before") {
    random_numbers random{3};
    const auto first_draw = draw(random, 12);
    const auto first = build_schedule(first_draw, one_forward_one_backward);
    REQUIRE(first);
    step_planner planner{*first, at_once()};
    auto before = *first;
    for (int step = 0; step < 5; ++step) {
        CAPTURE(step);
        const auto next = draw(random, 12);
        planner.submit(next);
        const auto plan = planner.next_plan();
        REQUIRE(plan.schedule);
        CHECK(oracle::judge(next, *plan.schedule).text() == "");
        CHECK(plan.objective == objective_of(next, *plan.schedule));
        const auto carried = carry_over(next, before);
        REQUIRE(carried);
        CHECK(plan.present == objective_of(next, *carried));
        CHECK(plan.objective <= plan.present);
        CHECK(plan.problem.microbatches == next.microbatches);
        before = *plan.schedule;
    }
}

TEST_CASE("a step that no plan fits is planned anew") {
    random_numbers random{4};
    step_planner planner{std::nullopt, at_once()};
    for (const std::size_t microbatches : {6U, 9U, 6U}) {
        planner.submit(draw(random, 2));
        const auto next = draw(random, microbatches);
        planner.submit(next);
        const auto plan = planner.next_plan();
        CHECK(plan.present.is_unlimited());
        CHECK(oracle::judge(next, *plan.schedule).text() == "");
    }
}

TEST_CASE("a planner without a time limit, or for varying durations, is refused") {
    if (!contracts_throw()) return;
    const auto makes = [](auto change) {
        auto how = at_once();
        change(how.how);
        const step_planner planner{std::nullopt, how};
    };
    CHECK_THROWS_AS(makes([](plan_options& how) { how.time_limit.reset(); }), contract_error);
    CHECK_THROWS_AS(makes([](plan_options& how) { how.time_limit.emplace(HUGE_VAL); }), contract_error);
    CHECK_THROWS_AS(makes([](plan_options& how) { how.robust.emplace(); }), contract_error);
    CHECK_NOTHROW(makes([](plan_options&) {}));
}

TEST_CASE("a step that can't be planned is refused with the reason") {
    random_numbers random{5};
    auto next = draw(random, 3);
    next.memory_limit[rank{2}] = memory_size{0.1};
    step_planner planner{std::nullopt, at_once()};
    planner.submit(next);
    CHECK_THROWS_WITH_AS(static_cast<void>(planner.next_plan()), doctest::Contains("memory_limit[2]"), error);
}
