#include "optpipe/planner/local_search/multi_start.hpp"

#include "optpipe/planner/local_search/local_search.hpp"
#include "optpipe/planner/strategies/published_builders.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

using namespace optpipe;
using detail::multi_start;

namespace {

constexpr std::size_t any = std::numeric_limits<std::size_t>::max();

std::vector<multi_start::candidate> candidates(const std::vector<double>& objectives) {
    std::vector<multi_start::candidate> result;
    for (const auto each : objectives)
        result.push_back({{}, duration{each}});
    return result;
}

/// Three ranks that keep or recompute what 1F1B would hold on the first in two thirds of its memory.
problem with_options() {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{3, 6}), per_stage<stage_costs>(3, unit)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.0};
    for (auto& options : p.storage)
        options = {keep_stash(unit), {"full", memory_size{0.25}, {}, duration{1.0}, {}, {}}};
    return p;
}

} // namespace

TEST_CASE("the better half of the starts goes on for twice as long") {
    multi_start starts;
    CHECK_FALSE(starts.take(10, any));
    starts.begin(candidates({5, 6, 7, 8, 9}));
    CHECK_FALSE(starts.take(10, 9)); // too long
    std::vector<multi_start::turn> round;
    for (std::size_t i = 0; i < 5; ++i) {
        auto next = starts.take(10, 10);
        REQUIRE(next);
        CHECK(next->moves == 10);
        CHECK(next->from.objective == duration{5.0 + static_cast<double>(i)});
        round.push_back(std::move(*next));
    }
    const std::vector<double> found{4.9, 3.0, 4.0, 4.8, 2.0};
    for (std::size_t i = 0; i < 5; ++i) {
        CHECK_FALSE(starts.take(10, any)); // others of the round are still being searched
        starts.put({{}, duration{found[i]}}, 1.0);
    }
    for (const double expected : {2.0, 3.0, 4.0}) {
        CHECK_FALSE(starts.take(10, 19));
        auto next = starts.take(10, any);
        REQUIRE(next);
        CHECK(next->moves == 20);
        CHECK(next->from.objective == duration{expected});
        round.push_back(std::move(*next));
    }
    for (const double each : {1.9, 1.0, 1.5})
        starts.put({{}, duration{each}}, 1.0);
    for (const double expected : {1.0, 1.5}) {
        auto next = starts.take(10, any);
        REQUIRE(next);
        CHECK(next->moves == 40);
        CHECK(next->from.objective == duration{expected});
    }
    starts.put({{}, duration{1.0}}, 1.0);
    starts.put({{}, duration{1.5}}, 1.0);
    // Two are left: the incumbent is as good as either. More rounds than a number of moves has bits.
    for (std::size_t i = 0; i < 100; ++i)
        CHECK_FALSE(starts.take(10, any));
}

TEST_CASE("where all starts would take too long, the first of them are searched") {
    multi_start starts;
    starts.begin(candidates({5, 6, 7, 8, 9}), 7.0);
    const auto first = starts.take(10, any);
    const auto second = starts.take(10, any);
    REQUIRE(first);
    REQUIRE(second);
    SUBCASE("one of them takes a second, in each of three rounds") {
        starts.put(first->from, 1.0);
        starts.put(second->from, 1.0);
        CHECK_FALSE(starts.take(10, any));
    }
    SUBCASE("half a second: time for four") {
        starts.put(first->from, 0.5);
        CHECK(starts.take(10, any)->from.objective == duration{7.0});
        CHECK(starts.take(10, any)->from.objective == duration{8.0});
        CHECK_FALSE(starts.take(10, any));
    }
    SUBCASE("those that are being searched already are kept") {
        starts.put(first->from, 100.0);
        CHECK_FALSE(starts.take(10, any));
        starts.put(second->from, 100.0);
        CHECK_FALSE(starts.take(10, any));
    }
}

TEST_CASE("local search goes on from a start that is better than the incumbent") {
    const auto p = with_options();
    const auto better = build_schedule(p, adapipe);
    REQUIRE(better);
    const auto objective = objective_of(p, *better);
    search_state state{p};
    state.offer(one_at_a_time(p), "start");
    REQUIRE(objective < state.objective());
    state.shared<multi_start>()->begin({{*better, objective}});
    local_search(state, {.seed = 1, .moves = 4000});
    CHECK(state.objective() <= objective);
    CHECK(validate(p, *state.incumbent()).empty());
    CHECK_FALSE(state.shared<multi_start>()->take(1, any));
}

TEST_CASE("it starts from the best schedules of builders with one storage option for all") {
    search_state state{with_options()};
    run_log log;
    const auto built = run_published_builders(state, {}, 1, log, [] {});
    const auto starts = state.shared<multi_start>();
    auto last = duration{};
    std::size_t count = 0;
    while (const auto next = starts->take(1, any)) {
        CHECK(next->from.objective > last);
        CHECK(validate(state.problem(), next->from.best).empty());
        CHECK(objective_of(state.problem(), next->from.best) == next->from.objective);
        if (count == 0) CHECK(next->from.objective == state.objective());
        last = next->from.objective;
        ++count;
    }
    CHECK(count > 1);
    CHECK(count <= detail::builder_parameters{}.starts);
}

TEST_CASE("where there is an incumbent already, builders leave it at that") {
    search_state state{with_options()};
    state.offer(one_at_a_time(state.problem()), "start");
    run_log log;
    const auto built = run_published_builders(state, {}, 1, log, [] {});
    CHECK_FALSE(state.shared<multi_start>()->take(1, any));
}
