#include "optpipe/planner/lns/window_search.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

problem linear_problem(std::size_t ranks, std::size_t microbatches, double stashes, double transfer = 0.0) {
    stage_costs each{duration{18.5}, duration{18.1}, duration{9.3}, memory_size{1.0}, memory_size{0.5}, {}};
    if (transfer > 0.0) each.transfer = transfer_times{duration{transfer}, duration{transfer}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, each)};
    p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{stashes};
    return p;
}

} // namespace

TEST_CASE("what it offers is valid, never worse than the start, and the same with the same seed") {
    std::size_t better = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(40); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 6, .microbatches = 8, .cells = 24}).problem;
        const auto run = [&](search_state& state) {
            state.offer(one_at_a_time(p), "start");
            window_search(state, {.seed = seed, .windows = 12});
        };
        search_state one{p};
        search_state two{p};
        run(one);
        run(two);
        REQUIRE(one.incumbent() != nullptr);
        CHECK(one.incumbent()->operations == two.incumbent()->operations);
        const auto verdict = oracle::judge(p, *one.incumbent());
        CHECK_MESSAGE(verdict.valid(), verdict.text());
        const auto start = time_order(p, one_at_a_time(p));
        CHECK(one.objective() <= objective_of(p, *start));
        better += one.objective() < objective_of(p, *start) ? 1 : 0;
    }
    CHECK(better > oracle::random_cases(20));
}

TEST_CASE("storage options and orders change: valid, and better than the start") {
    std::size_t better = 0;
    std::size_t changed = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(60); ++seed) {
        CAPTURE(seed);
        oracle::random_numbers random{seed};
        const auto p = oracle::make_random_problem(
                           random, {.ranks = 3, .stages = 4, .microbatches = 6, .cells = 18, .storage_percent = 100})
                           .problem;
        if (is_described_by_costs(p)) continue;
        const auto start = oracle::random_order(random, p);
        search_state state{p};
        state.offer(start, "start");
        const auto before = *state.incumbent();
        window_search(state, {.seed = seed, .windows = 40});
        const auto verdict = oracle::judge(p, *state.incumbent());
        REQUIRE_MESSAGE(verdict.valid(), verdict.text());
        CHECK(verdict.objective <= objective_of(p, before).value() * (1.0 + 1e-9));
        better += verdict.objective < objective_of(p, before).value() * (1.0 - 1e-9) ? 1 : 0;
        const auto recomputations = [](const schedule& s) {
            return std::count_if(s.operations.begin(), s.operations.end(), [](const timed_operation& timed) {
                return timed.op.kind == operation_kind::recompute;
            });
        };
        changed += recomputations(*state.incumbent()) != recomputations(before) ? 1 : 0;
    }
    CHECK(better >= oracle::random_cases(30));
    constexpr std::uint64_t enough = 60; // starts are clean, so few recomputations change
    if (oracle::random_cases(60) >= enough) CHECK(changed > 0);
}

TEST_CASE("window by window it reaches the global optimum: known values") {
    // 4 ranks, 8 microbatches, 4 and 3 stashes; proven by several solvers.
    for (const auto& known : {std::pair{4.0, 456.3}, {3.0, 531.9}}) {
        const auto stashes = known.first;
        const auto optimum = known.second;
        CAPTURE(stashes);
        const auto p = linear_problem(4, 8, stashes);
        search_state state{p};
        state.offer(one_at_a_time(p), "start");
        state.raise_bound(duration{optimum}, "known");
        window_search(state, {.seed = 1, .windows = 1500});
        CHECK(state.objective().value() == doctest::Approx(optimum));
    }
}

TEST_CASE("windows lie in the schedule, and possible transfers are beside their forward and gradient") {
    auto p = linear_problem(6, 12, 6.0, 9.0);
    const auto s = *build_schedule(p, adaptive_builder<>{.effort = 1});
    const detail::window_map map{p, s};
    const auto whole = map.end();
    random_numbers random{3};
    for (const auto how : detail::all_neighbourhoods) {
        CAPTURE(static_cast<int>(how));
        std::size_t nonempty = 0;
        for (int i = 0; i < 50; ++i) {
            const detail::window_center center{0.02 * i * whole, random.below(6)};
            const auto w = detail::draw_window(p, map, how, 40.0, center, {}, random);
            std::size_t inside = 0;
            for (const auto& timed : s.operations)
                inside += map.contains(w, timed.op) ? 1 : 0;
            CHECK(inside < s.operations.size());
            nonempty += inside > 0 ? 1 : 0;
        }
        if (how != detail::neighbourhood::transfers) CHECK(nonempty > 40);
    }
    detail::window early;
    early.to = duration{30.0};
    CHECK(map.contains(early, offload_of(stage{0}, microbatch{0})));
    CHECK_FALSE(map.contains(early, reload_of(stage{0}, microbatch{0})));
}

TEST_CASE("successful neighbourhoods are selected more often, and none is dropped") {
    detail::neighbourhood_selector choice{true, true, 400.0};
    for (int i = 0; i < 20; ++i)
        for (const auto how : detail::all_neighbourhoods)
            choice.update(how, how == detail::neighbourhood::ranks ? 0.01 : 0.0, 100.0,
                          how != detail::neighbourhood::interval);
    random_numbers random{1};
    std::array<std::size_t, detail::all_neighbourhoods.size()> drawn{};
    for (int i = 0; i < 3000; ++i)
        ++drawn[static_cast<std::size_t>(choice.select(random))];
    for (const auto how : detail::all_neighbourhoods) {
        const auto count = drawn[static_cast<std::size_t>(how)];
        CHECK(count > 50);
        if (how != detail::neighbourhood::ranks)
            CHECK(count < drawn[static_cast<std::size_t>(detail::neighbourhood::ranks)] / 2);
    }
    CHECK(choice.size(detail::neighbourhood::interval) < choice.size(detail::neighbourhood::ranks));
    detail::neighbourhood_selector without{false, false, 400.0};
    for (int i = 0; i < 500; ++i) {
        const auto drawn_without = without.select(random);
        CHECK(drawn_without != detail::neighbourhood::transfers);
        CHECK(drawn_without != detail::neighbourhood::storage);
    }
}

TEST_CASE("nothing to start from, or nothing left to do: nothing happens") {
    const auto p = linear_problem(3, 6, 3.0);
    search_state empty{p};
    window_search(empty, {.windows = 5});
    CHECK(empty.incumbent() == nullptr);
    search_state done{p};
    done.offer(one_at_a_time(p), "start");
    done.raise_bound(done.objective(), "bound");
    const auto steps = done.history().size();
    window_search(done);
    CHECK(done.history().size() == steps);
}
