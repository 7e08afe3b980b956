// Parts of schedules that are planned anew.
#include "optpipe/core/random.hpp"
#include "optpipe/planner/exact/reoptimize.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

constexpr auto everything = [](const operation&) { return true; };

schedule some_schedule(const problem& p) {
    const auto built = build_schedule(p, adaptive_builder<>{.effort = 1});
    return built ? *built : schedule{};
}

/// Whether I and at once W is as good as B, and none of them is a B that might be split.
bool splits_freely(const problem& p, const schedule& s) {
    return std::none_of(p.costs.begin(), p.costs.end(),
                        [](const stage_costs& c) { return c.weight_stash > c.activation; }) &&
           (!p.split_backward || std::none_of(s.operations.begin(), s.operations.end(), [](const timed_operation& t) {
               return t.op.kind == operation_kind::backward;
           }));
}

} // namespace

TEST_CASE("with everything free the optimum is found, and nothing better") {
    random_numbers random{4};
    std::size_t looked_at = 0;
    std::size_t settled = 0;
    std::size_t reached = 0;
    for (std::size_t i = 0; i < 150; ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.cells = 6});
        const auto current = some_schedule(r.problem);
        if (current.operations.empty()) continue;
        const auto best = oracle::exhaustive_optimum(r.problem, r.grid);
        if (!best.proven || !best.objective) continue;
        ++looked_at;
        const duration optimum{*best.objective};
        const auto found = exact::reoptimize(r.problem, current, everything, optimum, {.conflicts = 10'000});
        CHECK(found.settled);
        // A split that isn't in the schedule, or is, stays so.
        if (found.better) CHECK(objective_of(r.problem, *found.better).value() == doctest::Approx(optimum.value()));
        if (splits_freely(r.problem, current)) {
            // Else it would be settled that there is none.
            CHECK(found.better);
            ++reached;
        }
        const auto less = exact::reoptimize(r.problem, current, everything, 0.999 * optimum, {.conflicts = 10'000});
        CHECK_FALSE(less.better);
        settled += less.settled ? 1 : 0;
        const auto same = exact::reoptimize(r.problem, current, everything, objective_of(r.problem, current));
        CHECK(same.better);
    }
    CHECK(looked_at > 100);
    CHECK(reached > 50);
    CHECK(settled + 5 > looked_at);
}

TEST_CASE("what is better is valid, and as good as asked for; what is the same is found with anything free") {
    random_numbers random{5};
    for (std::size_t i = 0; i < 300; ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 6, .cells = 24});
        const auto& p = r.problem;
        const auto current = some_schedule(p);
        if (current.operations.empty()) continue;
        const auto objective = objective_of(p, current);
        const auto some = [&, salt = random.next()](const operation& op) {
            const auto a = op.microbatch.position() + salt;
            return a % p.graph.microbatches() < 2 && (salt % 3 != 0 || op.stage.position() % 2 == 0);
        };
        const auto same = exact::reoptimize(p, current, some, objective);
        CHECK(same.better);
        const auto target = 0.97 * objective;
        const auto found = exact::reoptimize(p, current, some, target, {.conflicts = 500});
        if (found.better) CHECK(objective_of(p, *found.better) <= target + duration{1e-6});
    }
}

TEST_CASE("what is settled for more free operations holds for fewer") {
    random_numbers random{6};
    std::size_t none = 0;
    std::size_t some_better = 0;
    for (std::size_t i = 0; i < 400; ++i) {
        CAPTURE(i);
        const auto r = testing::make_random_problem(random, {.ranks = 3, .stages = 4, .microbatches = 4, .cells = 10});
        const auto current = some_schedule(r.problem);
        if (current.operations.empty()) continue;
        const auto target = (1.0 - 0.02 * static_cast<double>(random.below(4) + 1)) * objective_of(r.problem, current);
        const auto pivot = random.below(r.problem.graph.microbatches());
        const auto few = [&](const operation& op) { return op.microbatch.position() == pivot; };
        const auto more = [&](const operation& op) { return op.microbatch.position() >= pivot; };
        const auto of_few = exact::reoptimize(r.problem, current, few, target, {.conflicts = 3000});
        const auto of_more = exact::reoptimize(r.problem, current, more, target, {.conflicts = 3000});
        if (of_few.better) CHECK((of_more.better || !of_more.settled));
        if (of_more.settled && !of_more.better) CHECK_FALSE(of_few.better);
        some_better += of_few.better ? 1 : 0;
        none += of_more.settled && !of_more.better ? 1 : 0;
    }
    CHECK(none > 50);
    CHECK(some_better > 20);
}

TEST_CASE("it stops whenever it is told to, before the search as well, and then claims nothing") {
    random_numbers random{7};
    const auto p =
        testing::make_random_problem(random, {.ranks = 4, .stages = 4, .microbatches = 8, .cells = 32}).problem;
    const auto current = some_schedule(p);
    REQUIRE_FALSE(current.operations.empty());
    std::size_t most_asked = 0;
    for (std::size_t last = 1; last < 40; ++last) {
        CAPTURE(last);
        std::size_t asked = 0;
        const auto found = exact::reoptimize(p, current, everything, 0.999 * objective_of(p, current),
                                             {.conflicts = 0, .stop = [&] { return ++asked >= last; }});
        if (asked >= last) CHECK_FALSE(found.settled);
        CHECK_FALSE(found.better);
        most_asked = std::max(most_asked, asked);
    }
    // For the model alone, of four ranks.
    CHECK(most_asked > 10);
}
