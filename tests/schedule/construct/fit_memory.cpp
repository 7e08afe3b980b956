#include "optpipe/schedule/construct/fit_memory.hpp"

#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
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

problem without_limits(problem p) {
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    return p;
}

} // namespace

TEST_CASE("an order that fits stays as it is") {
    constexpr std::uint64_t seed = 5;
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(random, {.cells = 12, .graph_percent = 80});
        const auto drawn = oracle::random_order(random, given.problem);
        const auto fitted = fit_memory(given.problem, operations_of(drawn));
        REQUIRE(fitted);
        CHECK(operations_of(*fitted) == operations_of(drawn));
    }
}

TEST_CASE("an order for more memory is postponed until it fits, or there is none") {
    constexpr std::uint64_t seed = 6;
    std::size_t too_large = 0;
    std::size_t fits = 0;
    const auto cases = oracle::random_cases(600);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.microbatches = 6, .cells = 18, .storage_percent = 30, .graph_percent = 80});
        const auto& p = given.problem;
        const auto drawn = oracle::random_order(random, without_limits(p));
        if (simulate(p, drawn)) continue;
        ++too_large;
        const auto fitted = fit_memory(p, operations_of(drawn));
        if (!fitted) continue;
        ++fits;
        CHECK(fitted->operations.size() == drawn.operations.size());
        const auto timed = time_order(p, *fitted);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        CHECK(oracle::judge(p, *timed).text() == "");
    }
    if (cases < 600) return;
    CHECK(too_large > 100);
    CHECK(2 * fits > too_large);
}

TEST_CASE("stages that hold two microbatches of a rank with room for three don't wait for each other") {
    // Rank 0 has the first and the last stage: filled by forwards of the first one, it could finish none.
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{2, 4}), per_stage<stage_costs>(4, unit)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{3.0};
    std::vector<operation> all;
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches())
            all.push_back(forward(s, m));
    for (const microbatch m : p.graph.all_microbatches())
        for (std::size_t s = p.graph.stages(); s-- > 0;)
            all.push_back(backward(stage{s}, m));
    const auto fitted = fit_memory(p, all);
    REQUIRE(fitted);
    CHECK(simulate(p, *fitted));
}

TEST_CASE("what appears twice, or waits for a missing operation, fits nowhere") {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    const problem p{to_any_graph(graph<dynamic, dynamic>{1, 1}), per_stage<stage_costs>(1, unit)};
    const auto f = forward(stage{0}, microbatch{0});
    const auto b = backward(stage{0}, microbatch{0});
    CHECK(fit_memory(p, {f, b}));
    CHECK_FALSE(fit_memory(p, {f, f, b}));
    CHECK_FALSE(fit_memory(p, {b}));
}
