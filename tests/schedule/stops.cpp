#include <optpipe/core/stop_check.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/builders/all.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <stop_token>

using namespace optpipe;

namespace {

problem tight_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs costs;
    costs.forward = costs.backward_input = costs.backward_weight = duration{1.0};
    costs.activation = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, costs)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.0};
    return p;
}

/// The largest number of microbatches in flight on rank 0.
std::size_t most_in_flight(const problem& p, const schedule& s) {
    return static_cast<std::size_t>(measure(p, s).peak_memory[rank{0}].value());
}

} // namespace

TEST_CASE("a single trial of the constructive planner asks many times whether to stop, and stops") {
    constexpr std::size_t microbatches = 20'000;
    const auto p = tight_problem(4, microbatches);
    adaptive_builder<> build;
    build.effort = 1;
    std::size_t polls = 0;
    const stop_when never{[&] {
        ++polls;
        return false;
    }};
    const auto whole = build(p, never);
    REQUIRE(whole);
    CHECK(polls > 50);

    std::size_t after = 0;
    std::size_t asked = 0;
    const stop_when soon{[&] {
        const bool stop = ++asked > polls / 10;
        after += stop ? 1 : 0;
        return stop;
    }};
    static_cast<void>(build(p, soon));
    CHECK(after < 100);
}

TEST_CASE("a constructive planner that is stopped at once has many microbatches under way") {
    auto p = tight_problem(8, 64);
    for (auto& limit : p.memory_limit)
        limit = memory_size{6.0};
    std::size_t polls = 0;
    const stop_when at_once{[&] {
        ++polls;
        return true;
    }};
    const auto built = adaptive(p, at_once);
    REQUIRE(built);
    CHECK(polls < 10);
    const auto timed = time_order(p, *built);
    REQUIRE(timed);
    CHECK(most_in_flight(p, *timed) == 6);
    CHECK(3.0 * objective_of(p, *timed) < p.serial_time());
}

TEST_CASE("each part of the bounds asks for every rank whether to stop") {
    auto p = tight_problem(64, 16);
    for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
        p.objective = objective;
        std::size_t polls = 0;
        const stop_when never{[&] { return ++polls == 0; }};
        const auto whole = memory_area_bound(p, never);
        CHECK(polls >= p.graph.ranks());
        CHECK(whole == memory_area_bound(p));
        std::size_t asked = 0;
        const stop_when soon{[&] { return ++asked > 10; }};
        CHECK(memory_area_bound(p, soon) <= whole);
        CHECK(asked <= 2 * p.graph.ranks());
    }
}

TEST_CASE("bounds that are stopped are valid, and not nothing") {
    auto p = tight_problem(8, 24);
    for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
        p.objective = objective;
        std::size_t polls = 0;
        const stop_when never{[&] {
            ++polls;
            return false;
        }};
        const auto all = bounds_of(p, never);
        CHECK(polls >= p.graph.ranks());
        const stop_when at_once{[] { return true; }};
        const auto first = bounds_of(p, at_once);
        CHECK(first.best() > duration{});
        CHECK(first.best() <= all.best());
        CHECK(all.best() == bounds_of(p).best());
    }
}

namespace {

template <class Placement> problem limited_problem(std::size_t ranks, std::size_t microbatches, double stashes) {
    const stage_costs costs{duration{1.0},    duration{1.1},    duration{0.9},
                            memory_size{1.0}, memory_size{0.5}, transfer_times{duration{1.5}, duration{1.5}}};
    const graph<dynamic, dynamic, Placement> shape{ranks, microbatches};
    problem p{to_any_graph(shape), per_stage<stage_costs>(shape.stages(), costs)};
    for (auto& limit : p.memory_limit)
        limit = memory_size{stashes};
    return p;
}

/// A stopped builder returns a refusal; otherwise it gives the same result with and without a token.
template <class Builder> void check_stops(const problem& p, const Builder& build) {
    CAPTURE(Builder::name);
    std::stop_source source;
    const auto token = source.get_token();
    const auto free = build(p);
    const auto asked = build(p, stop_check{token});
    REQUIRE(free);
    REQUIRE(asked);
    CHECK(free->operations == asked->operations);
    source.request_stop();
    const auto stopped = build(p, stop_check{token});
    REQUIRE_FALSE(stopped);
    CHECK(stopped.why().sentence == was_stopped().sentence);
    CHECK_FALSE(build_schedule(p, build, stop_check{token}));
}

} // namespace

TEST_CASE("published builders that take long can be stopped") {
    const auto linear = limited_problem<placement::linear>(4, 8, 3.0);
    const auto v = limited_problem<placement::v>(3, 6, 6.0);
    const auto loop = limited_problem<placement::loop<2>>(4, 8, 5.0);
    check_stops(linear, zero_bubble_auto);
    auto quick = v_auto;
    quick.effort = 10'000;
    check_stops(v, quick);
    check_stops(v, zero_bubble_v);
    check_stops(v, v_half);
    check_stops(v, v_min);
    check_stops(loop, gis);
    check_stops(loop, pipe_offload);
    check_stops(loop, pipe_offload_half);
    check_stops(loop, pipe_offload_full);
}

TEST_CASE("a deadline stops builders that search, and only those") {
    const std::stop_token token;
    using clock = stop_check::clock;
    const stop_check late{token, clock::time_point::min()};
    CHECK((late() && !late.is_requested()));
    const stop_check early{token, clock::now() + std::chrono::hours{1}};
    CHECK_FALSE((early() || early.is_requested()));
    const auto p = limited_problem<placement::v>(3, 6, 6.0);
    CHECK_FALSE(build_schedule(p, v_half, late));
    CHECK_FALSE(build_schedule(p, v_auto, late));
    CHECK(build_schedule(p, v_half, early));
    const auto linear = limited_problem<placement::linear>(4, 8, 8.0);
    CHECK(build_schedule(linear, gpipe, late));
}
