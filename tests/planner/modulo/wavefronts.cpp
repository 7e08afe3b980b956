#include "optpipe/planner/modulo/wavefronts.hpp"

#include "optpipe/planner/modulo/modulo_search.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

using namespace optpipe;

namespace {

problem linear_problem(std::size_t ranks, std::size_t microbatches, double stashes) {
    const stage_costs each{duration{18.5}, duration{18.1}, duration{9.3}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, each)};
    p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{stashes};
    return p;
}

std::vector<operation> lane_of(const problem& p, double spacing, rank r) { return detail::lanes_of(p, spacing)[r]; }

} // namespace

TEST_CASE("forwards and gradients share the slots of a rank") {
    const auto p = linear_problem(3, 3, 3.0);
    const auto f = [](std::size_t s, std::size_t m) { return forward(stage{s}, microbatch{m}); };
    const auto i = [](std::size_t s, std::size_t m) { return backward_input(stage{s}, microbatch{m}); };
    CHECK(lane_of(p, 1.0, rank{2}) == std::vector{f(2, 0), i(2, 0), f(2, 1), i(2, 1), f(2, 2), i(2, 2)});
    // Microbatches begin in slots 0, 2 and 4; the first is back on rank 0 in slot 5.
    CHECK(lane_of(p, 1.0, rank{0}) == std::vector{f(0, 0), f(0, 1), f(0, 2), i(0, 0), i(0, 1), i(0, 2)});
    // Microbatches begin in slots 0, 2 and 6.
    CHECK(lane_of(p, 1.5, rank{0}) == std::vector{f(0, 0), f(0, 1), i(0, 0), f(0, 2), i(0, 1), i(0, 2)});
    auto full = p;
    full.split_backward = false;
    CHECK(lane_of(full, 1.0, rank{2}).at(1) == backward(stage{2}, microbatch{0}));
}

TEST_CASE("the least spacing follows from memory and load") {
    // Slots of 18.3 and 0.6; eight pairs of them hold four microbatches.
    CHECK(detail::least_spacing(linear_problem(8, 32, 4.0)) == doctest::Approx(2.0));
    auto p = linear_problem(8, 32, 100.0);
    const double slots = 8 * 36.6 + 7 * 1.2;
    CHECK(detail::least_spacing(p) == doctest::Approx(8 * 45.9 / slots));
    p.split_backward = false;
    CHECK(detail::least_spacing(p) == doctest::Approx(8 * 45.9 / (slots + 8 * 9.3)).epsilon(0.03));
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    CHECK(detail::least_spacing(p) >= 1.0);
    CHECK(detail::applies_wavefronts(p));
    p.change_stage(stage{3}, [&](auto& c) { c.transfer = transfer_times{duration{1.0}, duration{1.0}}; });
    CHECK(!detail::applies_wavefronts(p));
}

TEST_CASE("with unequal stages, little memory and many microbatches the schedule is near the bound") {
    const auto microbatches = 256 / oracle::stride(2);
    auto p = linear_problem(16, microbatches, 12.0);
    for (const stage s : p.costs.indices()) {
        auto& c = p.costs[s];
        const double factor = 1.0 + 0.01 * static_cast<double>(s.position() * 7 % 11);
        c.forward = factor * c.forward;
        c.backward_input = factor * c.backward_input;
        c.backward_weight = factor * c.backward_weight;
    }
    search_state state{p};
    // Too little effort for patterns to catch up.
    modulo_search(state, {.effort = 18 * 12 * 16 * microbatches});
    REQUIRE(state.incumbent() != nullptr);
    const auto verdict = oracle::judge(p, *state.incumbent());
    CHECK_MESSAGE(verdict.valid(), verdict.text());
    CHECK(state.history().back().strategy == "wavefronts");
    CHECK(state.objective() <= 1.07 * bounds_of(p).best());
}

TEST_CASE("every step in slots is valid, and the effort limit is kept") {
    std::size_t found = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(
                           random, {.ranks = 5, .stages = 5, .microbatches = 12, .cells = 60, .offloading_percent = 0})
                           .problem;
        if (!detail::applies_wavefronts(p)) continue;
        std::size_t made = 0;
        const auto take = [&](const schedule& s) {
            ++made;
            const auto verdict = oracle::judge(p, s);
            CHECK_MESSAGE(verdict.valid(), verdict.text());
            return objective_of(p, s);
        };
        const auto cost = 12 * p.graph.cells();
        CHECK(detail::search_wavefronts(p, 3 * cost, take, {}) == 3 * cost);
        CHECK(made <= 3);
        found += made;
        CHECK(detail::search_wavefronts(p, 0, take, {}) == cost);
        const stop_when at_once{[] { return true; }};
        CHECK(detail::search_wavefronts(p, 3 * cost, take, at_once) == 0);
    }
    CHECK(found > 20);
}
