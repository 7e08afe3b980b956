#include "optpipe/online/step_run.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/online/room_for_plans.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

constexpr std::size_t ranks = 3;
constexpr std::size_t microbatches = 6;
constexpr double longest = 1.5;

/// Microbatches with lengths from 0.5 to `longest`; all of the given length if it isn't 0.
problem draw(random_numbers& random, double length = 0.0) {
    constexpr stage_costs cost{duration{2}, duration{3}, duration{1}, memory_size{1}, memory_size{0.5}};
    auto p =
        to_problem(make_problem(graph<dynamic, dynamic>{ranks, microbatches}, uniform_memory{cost}, memory_size{8.0}));
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < microbatches; ++m)
        factors.push_back(equal_factors(length > 0.0 ? length : 0.5 + random.share()));
    p.microbatches.set_factors(factors);
    return p;
}

/// No time: the plan before, carried over.
background_options at_once() {
    background_options how;
    how.how.time_limit = std::chrono::duration<double>{0.0};
    return how;
}
step_setting setting(rank self) {
    random_numbers unused{1};
    const lowering_options lowering{.bytes_per_unit = 64, .alignment = 8, .message_bytes = 24};
    return {lowering, room_for_plans(draw(unused, longest), self, lowering), at_once()};
}

} // namespace

TEST_CASE("each step runs the plan for its own microbatches, on all ranks") {
    constexpr std::size_t steps = 20;
    random_numbers random{7};
    const auto p = draw(random);
    const auto first = build_schedule(p, one_forward_one_backward);
    REQUIRE(first);
    threads::cluster cluster{ranks};
    std::vector<std::vector<std::uint64_t>> versions(ranks);
    std::vector<std::size_t> weights(ranks);
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        const auto self = here.self();
        testing::tracing_model model{ranks};
        step_run run{p, *first, here, model, cluster.control(self), setting(self)};
        for (std::size_t i = 0; i < steps; ++i) {
            if (self == rank{0}) run.submit(draw(random));
            versions[self.position()].push_back(run.version());
            run.step();
            run.switch_plan();
        }
        weights[self.position()] = model.weights();
    });
    for (std::size_t r = 0; r < ranks; ++r) {
        CAPTURE(r);
        REQUIRE(versions[r].size() == steps);
        for (std::size_t i = 0; i < steps; ++i)
            CHECK(versions[r][i] == i);
        CHECK(weights[r] == steps * microbatches);
    }
}

TEST_CASE("steps of graphs, slices and groups, whose microbatches differ each time") {
    constexpr std::size_t steps = 4;
    std::size_t runs = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(12); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(
            random, {.ranks = 3, .stages = 5, .microbatches = 4, .cells = 16, .graph_percent = 100});
        auto& p = given.problem;
        std::fill(p.memory_limit.begin(), p.memory_limit.end(), memory_size::unlimited());
        const auto first = build_schedule(p, adaptive);
        if (!first) continue;
        ++runs;
        const auto count = p.graph.microbatches();
        auto largest_of_all = p;
        largest_of_all.microbatches.set_factors(std::vector<cost_factors>(count, equal_factors(longest)));
        threads::cluster cluster{p.graph.ranks()};
        std::vector<std::uint64_t> versions(p.graph.ranks());
        threads::on_all_ranks(cluster, [&](threads::executor& here) {
            const auto self = here.self();
            const lowering_options lowering{.bytes_per_unit = 64, .alignment = 8, .message_bytes = 24};
            testing::tracing_model model{p.graph.ranks()};
            step_run run{p, *first, here, model, cluster.control(self),
                         {lowering, room_for_plans(largest_of_all, self, lowering), at_once()}};
            for (std::size_t i = 0; i < steps; ++i) {
                if (self == rank{0}) {
                    auto next = p;
                    std::vector<cost_factors> factors;
                    for (std::size_t m = 0; m < count; ++m)
                        factors.push_back(equal_factors(0.5 + random.share()));
                    next.microbatches.set_factors(factors);
                    run.submit(next);
                }
                run.step();
                run.switch_plan();
            }
            versions[self.position()] = run.version();
        });
        for (const auto version : versions)
            CHECK(version == steps);
    }
    CHECK(runs > oracle::random_cases(12) / 2);
}

TEST_CASE("if a plan can't be made or run, all ranks say so, and rank 0 says why") {
    const auto what_follows = [](const problem& next) {
        random_numbers random{8};
        const auto p = draw(random);
        const auto first = build_schedule(p, one_forward_one_backward);
        threads::cluster cluster{ranks};
        std::vector<std::string> said(ranks);
        threads::on_all_ranks(cluster, [&](threads::executor& here) {
            const auto self = here.self();
            testing::tracing_model model{ranks};
            step_run run{p, *first, here, model, cluster.control(self), setting(self)};
            if (self == rank{0}) run.submit(next);
            run.step();
            try {
                run.switch_plan();
            } catch (const error& e) {
                said[self.position()] = e.what();
            }
        });
        return said;
    };
    random_numbers random{9};
    auto without_plan = draw(random);
    without_plan.memory_limit[rank{2}] = memory_size{0.1};
    const auto no_plan = what_follows(without_plan);
    auto large = draw(random, 20.0); // larger than `longest`
    for (auto& limit : large.memory_limit)
        limit = memory_size::unlimited();
    const auto no_room = what_follows(large);
    for (const auto& each : {no_plan, no_room})
        for (const auto& said : each)
            CHECK(said.find("plan 1 of a step isn't run") == 0);
    CHECK(no_plan[0].find("memory_limit[2]") != std::string::npos);
    CHECK(no_room[0].find("rank 1 refuses plan 1") != std::string::npos);
}
