#include "optpipe/schedule/dispatch/lane_timing.hpp"

#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/dispatch/lane_search.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/spelled.hpp"
#include "oracle/v_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

using namespace optpipe;

/// F and I of 1F1B.
compute_lanes one_forward_one_gradient(const any_graph& g) {
    compute_lanes lanes(g.ranks());
    for (const stage s : g.all_stages()) {
        auto& lane = lanes[g.rank_of(s)];
        const auto ahead = g.stages() - 1 - s.position();
        std::size_t begun = 0;
        for (; begun < std::min(ahead, g.microbatches()); ++begun)
            lane.push_back(forward(s, microbatch{begun}));
        for (std::size_t m = 0; m < g.microbatches(); ++m) {
            if (begun < g.microbatches()) lane.push_back(forward(s, microbatch{begun++}));
            lane.push_back(backward_input(s, microbatch{m}));
        }
    }
    return lanes;
}
problem two_ranks(double limit) {
    auto p = oracle::linear_problem(2, 3, {1, 1, 1, 0}, 1.0, 1.0);
    for (auto& each : p.memory_limit)
        each = memory_size{limit};
    return p;
}

} // namespace

TEST_CASE("weight gradients fill waits, and come early where the memory needs them") {
    const auto p = two_ranks(2.0);
    const auto filled = fill_with_weights(p, one_forward_one_gradient(p.graph), p.memory_limit);
    REQUIRE(filled.has_value());
    CHECK(oracle::spell(*simulate(p, *filled)) ==
          "0F0@0 0F1@1 1F0@1 1I0@2 0I0@3 1F1@3 0W0@4 1I1@4 0F2@5 1W0@5 0I1@6 1F2@6 "
          "0W1@7 1I2@7 0I2@8 1W1@8 0W2@9 1W2@9");
}

TEST_CASE("a budget that no weight gradient helps is refused with what is needed") {
    const auto p = two_ranks(1.0);
    const auto filled = fill_with_weights(p, one_forward_one_gradient(p.graph), p.memory_limit);
    REQUIRE_FALSE(filled.has_value());
    CHECK(filled.why().reason == refusal_reason::over_memory);
    CHECK(filled.why().rank == rank{0});
    CHECK(filled.why().needed == memory_size{2.0});
}

TEST_CASE("lanes that wait for each other in a cycle are refused") {
    const auto p = two_ranks(9.0);
    auto lanes = one_forward_one_gradient(p.graph);
    std::swap(lanes[rank{0}][1], lanes[rank{0}][2]);
    std::swap(lanes[rank{1}][0], lanes[rank{1}][1]);
    const auto filled = fill_with_weights(p, lanes, p.memory_limit);
    REQUIRE_FALSE(filled.has_value());
    CHECK(filled.why().reason == refusal_reason::not_executable);
}

TEST_CASE("lanes with all operations are refused if they wait in a cycle, or exceed the memory") {
    const auto p = two_ranks(9.0);
    const auto lanes = lanes_of(p, *fill_with_weights(p, one_forward_one_gradient(p.graph), p.memory_limit));
    auto swapped = lanes;
    std::reverse(swapped[rank{0}].begin(), swapped[rank{0}].end());
    CHECK(lane_timer<any_graph>{p, p.memory_limit}.run(swapped).why().reason == refusal_reason::not_executable);
    const auto tight = two_ranks(0.5);
    const auto refused = lane_timer<any_graph>{tight, tight.memory_limit}.run(lanes);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::over_memory);
    CHECK(refused.why().limit == tight.memory_limit[refused.why().rank]);
}

TEST_CASE("weight gradients that a lane names keep their place") {
    const auto p = two_ranks(9.0);
    auto lanes = one_forward_one_gradient(p.graph);
    auto& lane = lanes[rank{1}];
    lane.insert(lane.begin() + 2, backward_weight(stage{1}, microbatch{0}));
    const auto filled = fill_with_weights(p, lanes, p.memory_limit);
    REQUIRE(filled.has_value());
    CHECK(lanes_of(p, *filled)[rank{1}][2] == backward_weight(stage{1}, microbatch{0}));
}

TEST_CASE(
    "filling, pulling ahead and searching keep every schedule valid and within its budget, and make none longer") {
    constexpr std::uint64_t seed = 71;
    int shorter_by_gaps = 0;
    int shorter_by_search = 0;
    for (std::uint64_t i = 0; i < 150; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto ranks = random.between(1, 6);
        const auto share = [&] { return 0.25 * static_cast<double>(random.between(1, 12)); };
        auto p = oracle::linear_problem(ranks, random.between(1, 12), {share(), share(), share(), 0.125}, 1.0, 0.5);
        for (auto& c : p.costs)
            c.backward_weight = duration{share()};
        for (auto& limit : p.memory_limit)
            limit = memory_size{static_cast<double>(ranks + random.below(3))};
        const weight_filling how{0.25 * static_cast<double>(random.below(5)), random.chance(50)};
        const auto lanes = one_forward_one_gradient(p.graph);
        const auto filled = fill_with_weights(p, lanes, p.memory_limit, how);
        REQUIRE(filled.has_value());
        const auto first = time_order(p, *filled);
        REQUIRE(first.has_value());
        CHECK(validate(p, *first).empty());

        const auto earliest = simulate(p, *filled);
        lane_timer<any_graph> timer{p, p.memory_limit};
        static_cast<void>(timer.fill(lanes)); // leaves nothing behind
        CHECK((*timer.fill(lanes, how))->operations == earliest->operations);
        CHECK(order_of(**timer.run(lanes_of(p, *filled))).operations == order_of(*earliest).operations);

        const auto pulled = time_order(p, fill_gaps(p, *filled, p.memory_limit));
        REQUIRE(pulled.has_value());
        CHECK(validate(p, *pulled).empty());
        CHECK(objective_of(p, *pulled) <= objective_of(p, *first));
        shorter_by_gaps += objective_of(p, *pulled) < objective_of(p, *first) ? 1 : 0;

        best_order<any_graph> best{p};
        const auto refill = [&](const compute_lanes& some) { return timer.fill(some); };
        lane_search{p, refill, best, seed}.run(lanes, 20'000);
        REQUIRE(best.found());
        const auto searched = time_order(p, *best);
        CHECK(validate(p, *searched).empty());
        const auto plain = objective_of(p, *time_order(p, *fill_with_weights(p, lanes, p.memory_limit)));
        CHECK(objective_of(p, *searched) <= plain);
        shorter_by_search += objective_of(p, *searched) < plain ? 1 : 0;
    }
    CHECK(shorter_by_gaps > 10);
    CHECK(shorter_by_search > 10);
}
