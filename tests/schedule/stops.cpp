#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/builders/adaptive.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <doctest/doctest.h>

#include <cstddef>

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

/// On rank 0.
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
    const auto whole = build(p, [&] {
        ++polls;
        return false;
    });
    REQUIRE(whole);
    CHECK(polls > 50);

    std::size_t after = 0;
    std::size_t asked = 0;
    static_cast<void>(build(p, [&] {
        const bool stop = ++asked > polls / 10;
        after += stop ? 1 : 0;
        return stop;
    }));
    CHECK(after < 100);
}

TEST_CASE("a constructive planner that is stopped at once has many microbatches under way") {
    auto p = tight_problem(8, 64);
    for (auto& limit : p.memory_limit)
        limit = memory_size{6.0};
    std::size_t polls = 0;
    const auto built = adaptive(p, [&] {
        ++polls;
        return true;
    });
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
        const auto whole = memory_area_bound(p, false, [&] { return ++polls == 0; });
        CHECK(polls >= p.graph.ranks());
        CHECK(whole == memory_area_bound(p, false));
        std::size_t asked = 0;
        CHECK(memory_area_bound(p, false, [&] { return ++asked > 10; }) <= whole);
        CHECK(asked <= 2 * p.graph.ranks());
    }
}

TEST_CASE("bounds that are stopped are valid, and not nothing") {
    auto p = tight_problem(8, 24);
    for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
        p.objective = objective;
        std::size_t polls = 0;
        const auto all = bounds_of(p, [&] {
            ++polls;
            return false;
        });
        CHECK(polls >= p.graph.ranks());
        const auto first = bounds_of(p, [] { return true; });
        CHECK(first.best() > duration{});
        CHECK(first.best() <= all.best());
        CHECK(all.best() == bounds_of(p).best());
    }
}
