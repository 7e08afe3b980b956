#include "optpipe/planner/portfolio/deterministic_portfolio.hpp"

#include "optpipe/parallel/arena.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "planner/portfolio/fake_strategies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

/// The results that must be the same on any number of threads.
struct outcome_of_batches {
    std::vector<timed_operation> operations;
    std::vector<std::string> steps;
    double bound = 0.0;
    friend bool operator==(const outcome_of_batches&, const outcome_of_batches&) = default;
};

outcome_of_batches run(const problem& p, const std::vector<any_search_strategy>& strategies,
                       deterministic_options options, search_limits limits = {}) {
    search_state state{p, std::move(limits)};
    state.offer(one_at_a_time(p), "start");
    run_log log;
    parallel::arena arena{std::min(options.threads, parallel::available_cores())};
    arena.execute([&] { run_deterministic_portfolio(state, strategies, options, log); });
    outcome_of_batches result;
    const auto best = state.incumbent();
    result.operations.assign(best->operations.begin(), best->operations.end());
    for (const auto& step : state.history())
        result.steps.push_back(step.strategy + " " + std::to_string(step.objective.value()) + " " +
                               std::to_string(step.bound.value()));
    result.bound = state.bound().value();
    return result;
}

struct timed_counter : fake::counter {
    static strategy_traits traits(const problem&) { return {.timed = true}; }
};

/// Offers a schedule and sets `found`.
struct early_finder {
    static constexpr std::string_view name = "early-finder";
    order knows{};
    std::atomic<bool>* found = nullptr;
    void operator()(search_state& state, const strategy_options&) const {
        state.offer(knows, name);
        *found = true;
    }
};
/// Settles the search once another strategy has found something.
struct late_prover {
    static constexpr std::string_view name = "late-prover";
    order knows{};
    duration bound{};
    const std::atomic<bool>* other_found = nullptr;
    void operator()(search_state& state, const strategy_options&) const {
        while (!*other_found)
            std::this_thread::yield();
        state.offer(knows, name);
        state.raise_bound(bound, name);
    }
};

} // namespace

TEST_CASE("the same seed, the same outcome, on any number of threads") {
    for (std::uint64_t seed = 1; seed <= 5; seed += oracle::stride(2)) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto p =
            testing::make_random_problem(random, {.ranks = 4, .stages = 8, .microbatches = 8, .cells = 48}).problem;
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        const std::vector<any_search_strategy> strategies{fake::shuffler{}, fake::prover{bounds_of(p).best(), 2},
                                                          fake::shuffler{}};
        const auto alone = run(p, strategies, {.seed = seed, .threads = 1, .batches = 2, .copies = 3});
        for (const std::size_t threads : {2U, 4U})
            for (int again = 0; again < 2; ++again)
                CHECK(run(p, strategies, {.seed = seed, .threads = threads, .batches = 2, .copies = 3}) == alone);
    }
}

TEST_CASE("seeds and batches matter") {
    const auto p = unit_problem(3, 4);
    const std::vector<any_search_strategy> strategies{fake::shuffler{}};
    const auto first = run(p, strategies, {.seed = 1, .batches = 2});
    bool differs = false;
    for (std::uint64_t seed = 2; seed <= 6; ++seed)
        differs = differs || run(p, strategies, {.seed = seed, .batches = 2}) != first;
    CHECK(differs);
    // The fourth batch is the first with this effort: 1, 4, 16, 64.
    const std::vector<any_search_strategy> late{fake::prover{duration{3.0}, 64}};
    CHECK(run(p, late, {.batches = 3}).bound == 0.0);
    CHECK(run(p, late, {.batches = 4}).bound == 3.0);
}

TEST_CASE("a proof stops later jobs and drops their results") {
    const auto p = unit_problem(4, 8);
    const fake::oracle oracle{*zero_bubble_h1(p)};
    const std::vector<any_search_strategy> oracle_first{oracle, fake::shuffler{}, fake::endless{}};
    const std::vector<any_search_strategy> shuffler_first{fake::shuffler{}, oracle, fake::endless{}};
    for (const std::size_t threads : {1U, 2U, 3U}) {
        const auto begins = run(p, oracle_first, {.threads = threads});
        CHECK(begins.steps.size() == 3);
        CHECK(begins.steps.back().starts_with("oracle"));
        const auto follows = run(p, shuffler_first, {.threads = threads});
        CHECK(follows.steps.size() == 4);
        CHECK(follows.steps[1].starts_with("shuffler"));
        CHECK(follows.bound == begins.bound);
    }
}

TEST_CASE("what a later job found before an earlier one settled the search is dropped, too") {
    if (parallel::available_cores() < 2) return;
    const auto p = unit_problem(4, 8);
    const auto settling = *build_schedule(p, one_forward_one_backward);
    const auto better = *build_schedule(p, zero_bubble_h1);
    REQUIRE(objective_of(p, better) < objective_of(p, settling));
    std::atomic<bool> found{false};
    const late_prover first{order_of(settling), bounds_of(p).best(), &found};
    const early_finder second{order_of(better), &found};
    const auto made = run(p, {first, second}, {.threads = 2}, {.gap = 0.5});
    REQUIRE(made.steps.size() == 3);
    CHECK(made.steps[1].starts_with("late-prover"));
    CHECK(made.steps[2].starts_with("late-prover"));
}

TEST_CASE("an exception of a strategy is rethrown, on any number of threads, and the others are stopped") {
    const auto p = unit_problem(2, 4);
    for (const std::size_t threads : {1U, 2U, 4U}) {
        CAPTURE(threads);
        std::atomic<std::size_t> stopped{0};
        CHECK_THROWS_WITH_AS(
            run(p, {fake::thrower{}, fake::endless{&stopped}, fake::endless{&stopped}}, {.threads = threads}), "thrown",
            std::runtime_error);
    }
}

TEST_CASE("stop requests and deadlines end the batches") {
    const auto p = unit_problem(2, 4);
    std::stop_source source;
    const fake::stopper asks{source};
    std::atomic<std::size_t> stopped{0};
    run(p, {asks, fake::endless{&stopped}}, {}, {.stop = source.get_token()});
    CHECK(stopped <= 1); // jobs that haven't begun don't begin
    run(p, {fake::endless{&stopped}}, {},
        {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{1}});
    CHECK(stopped <= 2);
}

TEST_CASE("a strategy that doesn't apply to the problem, or whose effort is time, isn't run") {
    std::atomic<std::size_t> calls{0};
    std::atomic<std::size_t> other_calls{0};
    run(unit_problem(2, 4), {fake::counter{&calls, true}, fake::counter{&other_calls, false}}, {.batches = 5});
    CHECK(calls == 5);
    CHECK(other_calls == 0);
    run(unit_problem(2, 4), {timed_counter{{&other_calls}}}, {.batches = 5});
    CHECK(other_calls == 0);
}
