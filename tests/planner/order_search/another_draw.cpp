// Plans for a draw of the microbatches from a plan of another draw, by fixed numbers of trials and moves.
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/planner/order_search/order_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/construct/carry_over.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

/// How many dispatchers and orders a search tries.
struct effort {
    std::size_t trials;
    std::size_t moves;
};
/// About the fiftieth part of 0.1 s for 8 ranks × 32 microbatches on a fast core, as these problems are smaller; and
/// ten times as much.
constexpr effort short_effort{40, 800};
constexpr effort long_effort{400, 8000};

/// Sixteen microbatches on four ranks. Attention takes a larger share of backwards than of forwards.
problem draw(random_numbers& random, bool is_v, bool is_lognormal) {
    constexpr stage_costs each{duration{10}, duration{12}, duration{8}, memory_size{1}, memory_size{0.5}};
    const std::size_t ranks = 4;
    const std::size_t microbatches = 16;
    const memory_size limit{is_v ? 9.0 : 6.0};
    auto p = is_v ? to_problem(make_problem(graph<dynamic, dynamic, placement::v>{ranks, microbatches},
                                            uniform_memory{each}, limit))
                  : to_problem(make_problem(graph<dynamic, dynamic>{ranks, microbatches}, uniform_memory{each}, limit));
    p.p2p = hop_times<>{duration{0.5}};
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < microbatches; ++m) {
        // The sum of four uniform numbers is nearly normal.
        const double normal = 1.7 * (random.share() + random.share() + random.share() + random.share() - 2.0);
        const double length = is_lognormal ? std::exp(0.5 * normal) : 0.4 + 1.2 * random.share();
        factors.push_back(
            {0.7 * length + 0.3 * length * length, 0.6 * length + 0.4 * length * length, length, length, length});
    }
    p.microbatches.set_factors(factors);
    return p;
}

void improve(search_state& state, std::size_t moves) {
    order_search(state, {.seed = 1, .moves = moves, .first_temperature = 2e-4, .moves_of_round = moves}, "orders");
}
schedule long_search(const problem& p) {
    search_state state{p};
    best_order<any_graph> best{p};
    graph_dispatch_search<any_graph>{p, best, {}, long_effort.trials, 1}.run();
    state.offer(*best, "dispatchers");
    improve(state, long_effort.moves);
    return *state.incumbent();
}
schedule short_search(const problem& p, const schedule& start) {
    search_state state{p};
    state.offer(start, "start");
    best_order<any_graph> best{p};
    graph_dispatch_search<any_graph> dispatchers{p, best, {}, short_effort.trials, 1};
    dispatchers.run_from(dispatchers.entrance_order(order_of(start)));
    if (best.found()) state.offer(*best, "dispatchers");
    improve(state, short_effort.moves);
    return *state.incumbent();
}

} // namespace

TEST_CASE("from a plan of another draw, a short search gains more than half of what a long search gains") {
    constexpr std::uint64_t seed = 31;
    double gained_at_once = 0.0; // shares of the start's objective
    double gained_in_time = 0.0;
    for (std::uint64_t i = 0; i < 16; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const bool is_v = i % 2 == 0;
        const bool is_lognormal = i % 4 < 2;
        const auto known = long_search(draw(random, is_v, is_lognormal));
        const auto next = draw(random, is_v, is_lognormal);
        const auto start = carry_over(next, known);
        REQUIRE(start);
        const auto quick = short_search(next, *start);
        CHECK(oracle::judge(next, quick).text() == "");
        CHECK(objective_of(next, quick) <= objective_of(next, *start));
        const auto given = objective_of(next, *start);
        gained_at_once += 1.0 - objective_of(next, quick) / given;
        gained_in_time += 1.0 - objective_of(next, long_search(next)) / given;
    }
    CHECK(gained_in_time > 0.0);
    CHECK(gained_at_once > 0.5 * gained_in_time);
}

TEST_CASE("all microbatches enter in the order of their first operations, slices one after the other") {
    constexpr std::uint64_t seed = 32;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p = oracle::make_random_problem(random, {.microbatches = 8, .cells = 24}).problem;
        std::vector<std::size_t> numbers(p.graph.microbatches());
        for (std::size_t m = 1; m < numbers.size(); ++m)
            numbers[m] = numbers[m - 1] + random.below(2);
        p.microbatches.set_sequences(numbers);
        best_order<any_graph> best{p};
        graph_dispatch_search<any_graph> search{p, best, {}, 1, 1};
        std::vector<std::size_t> sequences(numbers.back() + 1);
        for (std::size_t s = 0; s < sequences.size(); ++s)
            sequences[s] = s;
        for (std::size_t s = sequences.size(); s > 1; --s)
            std::swap(sequences[s - 1], sequences[random.below(s)]);
        order given{p.graph, {}};
        std::vector<microbatch> expected;
        for (const auto s : sequences)
            for (std::size_t m = 0; m < numbers.size(); ++m)
                if (numbers[m] == s) expected.push_back(microbatch{m});
        for (const auto m : expected) {
            given.operations.push_back(forward(stage{0}, m));
            given.operations.push_back(forward(stage{0}, expected.front()));
        }
        CHECK(search.entrance_order(given) == expected);
        auto longest = search.longest_inside();
        std::sort(longest.begin(), longest.end());
        auto all = expected;
        std::sort(all.begin(), all.end());
        CHECK(longest == all);
    }
}
