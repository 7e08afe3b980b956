#include "optpipe/planner/strategies/milp_strategy.hpp"

#include "optpipe/io/json_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

using namespace optpipe;

namespace {

problem file(const std::string& name) {
    return read_problem(OPTPIPE_SOURCE_DIR "/tests/data/problems/" + name + ".json");
}

strategy_options with_threads(std::size_t threads) {
    strategy_options o;
    o.threads = threads;
    return o;
}

} // namespace

TEST_CASE("small problems are solved to the proof, with or without a schedule to start from") {
    const struct {
        const char* name;
        double optimum;
    } known[] = {{"unit-p3-m6-mem075", 25.0},
                 {"unit-p4-m8-mem075", 31.0},
                 {"offload-p2-m4-mem050-k050", 275.4},
                 {"offload-p2-m4-mem075-k100", 306.9}};
    for (std::size_t i = 0; i < std::size(known); i += oracle::stride(2))
        for (const bool starts : {false, true}) {
            const auto* const name = known[i].name;
            const auto optimum = known[i].optimum;
            INFO(name << (starts ? " from adaptive" : " from nothing"));
            const auto p = file(name);
            search_state state{p};
            if (starts) state.offer(*adaptive(p), "adaptive");
            milp_strategy{}(state, with_threads(starts ? 2 : 1));
            CHECK(state.proven());
            CHECK(state.objective().value() == doctest::Approx(optimum));
            REQUIRE(state.incumbent() != nullptr);
            CHECK(is_valid(p, *state.incumbent()));
        }
}

TEST_CASE("random problems: the optimum of exhaustive search") {
    int compared = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.cells = 5;
        ranges.offloading_percent = 70;
        const auto made = oracle::make_random_problem(random, ranges);
        const auto best = oracle::exhaustive_optimum(made.problem, made.grid, 20'000);
        if (!best.proven || !best.objective) continue;
        INFO("seed " << seed);
        search_state state{made.problem};
        milp_strategy{}(state, with_threads(1));
        CHECK(state.proven());
        CHECK(state.objective().value() == doctest::Approx(*best.objective));
        ++compared;
    }
    CHECK(compared > 50);
}

TEST_CASE("random problems with lists of storage options: the optimum of exhaustive search") {
    std::uint64_t compared = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(40); ++seed) {
        random_numbers random{seed};
        const auto made =
            oracle::make_random_problem(random, {.cells = 5, .offloading_percent = 70, .storage_percent = 100});
        if (is_described_by_costs(made.problem)) continue;
        const auto best = oracle::exhaustive_optimum(made.problem, made.grid, 20'000);
        if (!best.proven || !best.objective) continue;
        INFO("seed " << seed);
        search_state state{made.problem};
        // This stands for another strategy's schedule: the model then only has better schedules than the first one.
        const auto built = adaptive(made.problem);
        if (built && seed % 2 == 0) state.offer(*built, "adaptive");
        milp_strategy{}(state, with_threads(1));
        CHECK(state.proven());
        CHECK(state.objective().value() == doctest::Approx(*best.objective));
        ++compared;
    }
    CHECK(compared > oracle::random_cases(25));
}

TEST_CASE("a stop request stops the search, and its bound holds") {
    const auto p = file("offload-p6-m12-mem050-k050");
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{300};
    search_state state{p, limits};
    milp_strategy{}(state, with_threads(2));
    CHECK(state.bound().value() <= 702.6);
    CHECK_FALSE(state.proven());

    search_state with_effort{p};
    auto little = with_threads(1);
    little.effort = 50'000;
    milp_strategy{}(with_effort, little);
    CHECK_FALSE(with_effort.done());
}

TEST_CASE("problems that are too large are skipped") {
    const milp_strategy strategy;
    CHECK(strategy.traits(file("offload-p6-m12-mem050-k050")).applicable);
    CHECK(strategy.traits(file("offload-p6-m12-mem050-k050")).timed); // deterministic plans leave it out
    CHECK_FALSE(strategy.traits(file("zb-28.3b-p32-m128-mem100")).applicable);
    // With lists of storage options, problems with more than a few stashes are skipped.
    const auto stores = [](const char* name) {
        return read_problem(std::string{OPTPIPE_SOURCE_DIR "/tests/data/storage/"} + name);
    };
    CHECK(strategy.traits(stores("store-p2-m4-k100.json")).knows_storage_options);
    CHECK_FALSE(strategy.traits(stores("store-p3-m5-k100.json")).knows_storage_options);
    const auto p = file("zb-28.3b-p32-m128-mem100");
    search_state state{p};
    strategy(state, with_threads(1));
    CHECK(state.history().empty());
}
