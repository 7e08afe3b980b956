#include "optpipe/schedule/dispatch/order_dispatcher.hpp"

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

std::vector<operation> operations_of(const order& o) { return {o.operations.begin(), o.operations.end()}; }

order dispatched(const problem& p, const order& given, order_dispatch_options with) {
    return {p.graph, order_dispatcher<any_graph>{p, operations_of(given), with}.run()};
}

constexpr order_dispatch_options with_care{.window = memory_windows.back(), .patience = 0.0, .careful = true};

} // namespace

TEST_CASE("whatever the order: all operations in a valid order, or some are missing") {
    constexpr std::uint64_t seed = 31;
    std::size_t complete = 0;
    const auto cases = oracle::random_cases(400);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.microbatches = 6, .cells = 18, .storage_percent = 30, .graph_percent = 70});
        const auto& p = given.problem;
        const auto drawn = oracle::random_order(random, p);
        for (const auto& options : order_dispatch_choices) {
            const auto made = dispatched(p, drawn, options);
            if (made.operations.size() < drawn.operations.size()) continue;
            const auto timed = time_order(p, made);
            if (!timed) continue; // host memory
            ++complete;
            CHECK(oracle::judge(p, *timed).text() == "");
        }
    }
    if (cases >= 400) CHECK(complete > 4 * cases);
}

TEST_CASE("a rank runs what is ready while the next operation of its order isn't") {
    stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 2}), per_stage<stage_costs>(2, unit)};
    p.split_backward = false;
    const stage a{0}, b{1};
    const microbatch m{0}, n{1};
    // As if the second stage took no time: the first one would wait for the gradient of m.
    const order given{p.graph,
                      {forward(a, m), forward(b, m), backward(b, m), backward(a, m), forward(a, n), forward(b, n),
                       backward(b, n), backward(a, n)}};
    const auto before = time_order(p, given);
    const auto after = time_order(p, dispatched(p, given, {}));
    REQUIRE(before);
    REQUIRE(after);
    CHECK(objective_of(p, *before) == duration{12.0});
    CHECK(objective_of(p, *after) == duration{9.0});
    // In its order alone, nothing changes.
    const auto same = time_order(p, dispatched(p, given, {.window = 1}));
    REQUIRE(same);
    CHECK(objective_of(p, *same) == duration{12.0});
    // The forward of n takes memory that there isn't.
    p.memory_limit = per_rank<memory_size>(2, memory_size{1.0});
    const auto tight = time_order(p, dispatched(p, given, {}));
    REQUIRE(tight);
    CHECK(objective_of(p, *tight) == duration{12.0});
}

TEST_CASE("with care, every order is completed where one sequence at a time fits") {
    constexpr std::uint64_t seed = 32;
    std::size_t too_large = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        auto p = oracle::make_random_problem(
                     random, {.ranks = 4, .stages = 6, .microbatches = 10, .cells = 40, .offloading_percent = 0})
                     .problem;
        std::vector<cost_factors> factors;
        for (std::size_t m = 0; m < p.graph.microbatches(); ++m) {
            const double factor = 0.5 + random.share();
            factors.push_back({factor, factor, factor, factor, factor});
        }
        p.microbatches.set_factors(factors);
        // A split backward that needs more memory than a full one isn't counted.
        p.change_stages([](stage_costs& c) { c.weight_stash = std::min(c.weight_stash, c.activation); });
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        const auto drawn = oracle::random_order(random, p);
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = 1.5 * (1.0 + random.share()) * least_memory(p, r).needed; // the largest factor is 1.5
        too_large += time_order(p, drawn) ? 0 : 1;
        const auto made = dispatched(p, drawn, with_care);
        CHECK(made.operations.size() == drawn.operations.size());
        const auto timed = time_order(p, made);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        CHECK(oracle::judge(p, *timed).text() == "");
    }
    if (cases >= 300) CHECK(too_large > 50);
}

TEST_CASE("with care, stages that hold two microbatches of a rank with room for three don't wait for each other") {
    // Rank 0 has the first and the last stage: filled by forwards of the first one, it could finish none.
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{2, 4}), per_stage<stage_costs>(4, unit)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{3.0};
    order all{p.graph, {}};
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches())
            all.operations.push_back(forward(s, m));
    for (const microbatch m : p.graph.all_microbatches())
        for (std::size_t s = p.graph.stages(); s-- > 0;)
            all.operations.push_back(backward(stage{s}, m));
    CHECK_FALSE(time_order(p, dispatched(p, all, {.window = memory_windows.back(), .patience = 0.0})));
    CHECK(time_order(p, dispatched(p, all, with_care)));
}

TEST_CASE("an operation that waits for a missing one doesn't start") {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    const problem p{to_any_graph(graph<dynamic, dynamic>{1, 1}), per_stage<stage_costs>(1, unit)};
    CHECK(dispatched(p, {p.graph, {backward(stage{0}, microbatch{0})}}, {}).operations.empty());
    CHECK(dispatched(p, {p.graph, {backward(stage{0}, microbatch{0})}}, with_care).operations.empty());
}
