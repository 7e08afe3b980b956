// The plans of the planner train the model as well: with offloading, on 2, 4 and 8 ranks, and step after step.
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/evaluate.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#if !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: Eigen or TBB is missing") {}
#else

namespace {

optpipe::problem tight_problem(std::size_t ranks) {
    auto p = training::problem_with<optpipe::placement::linear>(ranks, ranks + 2, optpipe::duration{0.8});
    training::limit_stashes(p, 1.0 + 0.25 * static_cast<double>(ranks));
    return p;
}
optpipe::schedule plan_of(const optpipe::problem& p) {
    const auto planned = optpipe::plan(p, {.threads = 1, .gap = 0.2});
    REQUIRE(planned.has_value());
    REQUIRE(measure(p, planned->schedule).offloads > 0);
    return planned->schedule;
}

} // namespace

TEST_CASE("under plans with offloading the gradients are those of the model without a pipeline, bit for bit") {
    for (const std::size_t ranks : {2U, 4U, 8U}) {
        CAPTURE(ranks);
        const auto p = tight_problem(ranks);
        const auto s = plan_of(p);
        CHECK(training::gradients_by(p, s) == training::gradients_alone(s));
    }
}

TEST_CASE("the loss falls, and under a plan with offloading just as under 1F1B") {
    constexpr std::size_t steps = 12;
    const auto tight = tight_problem(4);
    const auto roomy = training::problem_with<optpipe::placement::linear>(4, 6);
    auto stages = training::fresh_stages(4);
    auto again = training::fresh_stages(4);
    const auto losses =
        training::train(stages, roomy, *build_schedule(roomy, optpipe::one_forward_one_backward), steps, true);
    CHECK(losses.back() < 0.95 * losses.front());
    CHECK(training::train(again, tight, plan_of(tight), steps, true) == losses);
}

#endif
