// Plans that the planner has improved train the model as well: with offloading, on 2, 4 and 8 ranks, step after step.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: Eigen or TBB is missing") {}
#else

#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/local_search.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/evaluate.hpp"

#include <cstddef>
#include <vector>

namespace {

optpipe::problem tight_problem(std::size_t ranks) {
    auto p = training::problem_with<optpipe::placement::linear>(ranks, ranks + 2, optpipe::duration{0.8});
    training::limit_stashes(p, 1.0 + 0.25 * static_cast<double>(ranks));
    return p;
}
struct improved_plan {
    optpipe::schedule schedule;
    bool is_better = false;
};
/// What the search makes of a simple schedule.
improved_plan plan_of(const optpipe::problem& p) {
    optpipe::search_board board{p};
    local_search(board, {.moves = 0});
    REQUIRE(board.incumbent());
    const auto simple = board.objective();
    local_search(board, {.moves = 4000});
    REQUIRE(measure(p, *board.incumbent()).offloads > 0);
    return {*board.incumbent(), board.objective() < simple};
}

} // namespace

TEST_CASE("under plans with offloading the gradients are those of the model without a pipeline, bit for bit") {
    std::size_t better = 0;
    for (const std::size_t ranks : {2U, 4U, 8U}) {
        CAPTURE(ranks);
        const auto p = tight_problem(ranks);
        const auto plan = plan_of(p);
        better += plan.is_better ? 1 : 0;
        CHECK(training::gradients_by(p, plan.schedule) == training::gradients_alone(plan.schedule));
    }
    CHECK(better > 0);
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
    CHECK(training::train(again, tight, plan_of(tight).schedule, steps, true) == losses);
}

#endif
