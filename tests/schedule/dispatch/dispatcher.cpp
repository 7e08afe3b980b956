#include "optpipe/schedule/dispatch/dispatcher.hpp"

#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>

namespace {

using namespace optpipe;

template <class Numbers> dispatch_options random_options(Numbers& random) {
    const auto pick = [&](std::initializer_list<double> values) { return values.begin()[random.below(values.size())]; };
    return {.depth = pick({1.0, 1.5, 2.0, 1e9}),
            .memory_share = pick({1.0, 0.7, 0.0}),
            .weight_fit = pick({0.0, 0.5, 1.0}),
            .forward_wait = pick({0.0, 0.5, 1.0}),
            .forwards = static_cast<forward_preference>(random.below(3)),
            .offload_share = pick({0.0, 0.3, 0.5, 1.0}),
            .staging = pick({-1.0, 0.0, 1.0, 2.0}),
            .lead = pick({0.0, 1.0, 4.0})};
}

template <class Numbers> dispatch_hints<any_graph> random_hints(Numbers& random, const any_graph& g) {
    using hints = dispatch_hints<any_graph>;
    hints result{g};
    for (auto& hint : result.stashes)
        if (random.chance(30)) hint = static_cast<hints::stash>(random.below(3));
    for (auto& hint : result.weights)
        if (random.chance(30)) hint = static_cast<hints::weight>(random.below(3));
    for (auto& depth : result.depth)
        depth = static_cast<int>(random.below(5)) - 2;
    return result;
}

} // namespace

TEST_CASE("with any parameters and exceptions a dispatcher never deadlocks, and its schedules are valid") {
    std::size_t offloads = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(3000); ++seed) {
        CAPTURE(seed);
        oracle::random_numbers random{seed};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 4, .stages = 10, .microbatches = 8, .cells = 60}).problem;
        if (!fits_one_at_a_time(p)) continue;
        const auto facts = make_dispatch_facts(p, offload::solver_decides{});
        const auto hints = random_hints(random, p.graph);
        dispatcher<any_graph> run{p, facts, random_options(random), hints};
        const auto operations = run.run();
        const auto timed = simulate(p, order{p.graph, operations});
        const std::string why = timed ? "" : describe(timed.why());
        CAPTURE(why);
        REQUIRE(timed.has_value());
        CHECK(is_valid(p, *timed));
        CHECK(oracle::judge(p, *timed).valid());
        offloads += measure(p, *timed).offloads;
    }
    CHECK(offloads > oracle::random_cases(1000));
}

TEST_CASE("the same options give the same run") {
    oracle::random_numbers random{7};
    const auto p =
        oracle::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 8, .cells = 64}).problem;
    const auto facts = make_dispatch_facts(p, offload::solver_decides{});
    const dispatch_hints<any_graph> none{p.graph};
    dispatcher<any_graph> first{p, facts, {}, none};
    dispatcher<any_graph> second{p, facts, {}, none};
    CHECK(first.run() == second.run());
    CHECK(first.work() == second.work());
}
