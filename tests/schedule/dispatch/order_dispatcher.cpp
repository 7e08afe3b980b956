#include "optpipe/schedule/dispatch/order_dispatcher.hpp"

#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

std::vector<operation> operations_of(const order& o) { return {o.operations.begin(), o.operations.end()}; }

order dispatched(const problem& p, const order& given, order_dispatch_options with) {
    return {p.graph, order_dispatcher<any_graph>{p, operations_of(given), with}.run()};
}

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
