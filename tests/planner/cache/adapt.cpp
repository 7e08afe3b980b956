#include "optpipe/planner/cache/adapt.hpp"

#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

problem with_microbatches(const problem& p, std::size_t count) {
    per_stage<rank> map(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        map[s] = p.rank_of(s);
    auto result = p;
    result.graph = any_graph{p.graph.ranks(), count, placement::map<>{std::move(map)}};
    return result;
}

operation_sequence operations_of(const problem& p, const order& given) {
    const auto timed = simulate(p, given);
    REQUIRE(timed);
    const auto sorted = order_of(*timed);
    return {sorted.operations.begin(), sorted.operations.end()};
}

outcome<schedule> timed(const problem& p, const operation_sequence& all) {
    order candidate{p.graph, {}};
    candidate.operations.assign(all.begin(), all.end());
    return time_order(p, candidate);
}

duration best_of(const problem& p, const operation_sequence& known, std::size_t from) {
    duration best = duration::unlimited();
    for (const auto& adapted : adapted_orders(known, from, p))
        if (const auto found = timed(p, adapted)) best = std::min(best, objective_of(p, *found));
    return best;
}

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

} // namespace

TEST_CASE("a steady state is made longer and shorter without loss") {
    for (const std::size_t ranks : {2, 4, 6}) {
        auto p = unit_problem(ranks, 3 * ranks);
        const auto h1 = operations_of(p, *zero_bubble_h1(p));
        const auto f1b = operations_of(p, *one_forward_one_backward(p));
        for (const std::size_t count : {ranks, 2 * ranks + 1, 3 * ranks, 3 * ranks + 1, 5 * ranks, 20 * ranks}) {
            const auto other = with_microbatches(p, count);
            CAPTURE(ranks);
            CAPTURE(count);
            CHECK(best_of(other, f1b, 3 * ranks) <=
                  objective_of(other, *build_schedule(other, one_forward_one_backward)));
            CHECK(best_of(other, h1, 3 * ranks) <= objective_of(other, *build_schedule(other, zero_bubble_h1)));
        }
    }
}

TEST_CASE("every problem gets a valid order of another's, for more and for fewer microbatches") {
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24}).problem;
        const auto built = adaptive_builder<>{.effort = 2000}(p);
        REQUIRE(built);
        const auto known = operations_of(p, *built);
        const auto from = p.graph.microbatches();
        for (std::size_t to = 1; to <= from + 5; ++to) {
            CAPTURE(to);
            const auto other = with_microbatches(p, to);
            std::size_t valid = 0;
            for (const auto& adapted : adapted_orders(known, from, other)) {
                const auto found = timed(other, adapted);
                if (!found) continue;
                CHECK(oracle::judge(other, *found).valid());
                ++valid;
            }
            CHECK(valid > 0);
            if (to <= from) CHECK(valid == adapted_orders(known, from, other).size());
        }
    }
}

TEST_CASE("orders that make no sense are adapted to some that make none") {
    const auto p = unit_problem(2, 6);
    const operation_sequence nonsense{forward(stage{0}, microbatch{1}), reload_of(stage{5}, microbatch{0}),
                                      forward(stage{0}, microbatch{0})};
    for (const auto& known : {operation_sequence{}, nonsense})
        for (const std::size_t from : {1, 3, 6, 9})
            for (const auto& adapted : adapted_orders(known, from, p))
                CHECK_FALSE(timed(p, adapted));
}
