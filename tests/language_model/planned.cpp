// Plans that the planner has improved train the model as well: with offloading, on 2, 4 and 8 ranks, in every step.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: Eigen or TBB is missing") {}
#else

#include "language_model/tight_plan.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <cstddef>

TEST_CASE("under plans with offloading the gradients are those of the model without a pipeline, bit for bit") {
    std::size_t better = 0;
    for (const std::size_t ranks : {2U, 4U, 8U}) {
        CAPTURE(ranks);
        const auto p = training::tight_problem(ranks);
        const auto plan = training::plan_of(p);
        const auto* published = best_published(plan);
        REQUIRE(published);
        better += plan.objective < *published->objective ? 1 : 0;
        MESSAGE(ranks << " ranks, by " << plan.method << ", " << measure(p, plan.schedule).offloads << " offloads");
        CHECK(training::gradients_by(p, plan.schedule) == training::gradients_alone(plan.schedule));
    }
    CHECK(better > 0);
}

TEST_CASE("the loss falls, and under a plan with offloading just as under 1F1B") {
    constexpr std::size_t steps = 12;
    const auto tight = training::tight_problem(4);
    const auto roomy = training::problem_with<optpipe::placement::linear>(4, 6);
    auto stages = training::fresh_stages(4);
    auto again = training::fresh_stages(4);
    const auto losses =
        training::train(stages, roomy, *build_schedule(roomy, optpipe::one_forward_one_backward), steps);
    CHECK(losses.back() < 0.95 * losses.front());
    CHECK(training::train(again, tight, training::plan_of(tight).schedule, steps) == losses);
}

#endif
