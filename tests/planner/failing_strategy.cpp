// A faulty strategy, where contracts throw: the results of the others aren't lost.
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

/// Offers a schedule that is shorter than possible by a tenth.
struct liar {
    static constexpr std::string_view name = "liar";
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
    void operator()(search_state& state, const strategy_options&) const {
        ++*calls;
        auto shorter = *state.incumbent();
        for (auto& timed : shorter.operations) {
            timed.start = 0.9 * timed.start;
            timed.end = 0.9 * timed.end;
        }
        state.offer(shorter, name);
    }
};

/// Has offered a good schedule before it breaks a contract, and would continue with a wrong result.
struct stumbler {
    static constexpr std::string_view name = "stumbler";
    schedule good{};
    void operator()(search_state& state, const strategy_options&) const {
        state.offer(good, name);
        OPTPIPE_EXPECT(state.incumbent() == nullptr, "stumbler: stumbled");
        state.raise_bound(state.objective(), name);
    }
};

/// Proves too much.
struct boaster {
    static constexpr std::string_view name = "boaster";
    void operator()(search_state& state, const strategy_options&) const {
        state.raise_bound(2.0 * state.objective(), name);
    }
};

struct modest {
    static constexpr std::string_view name = "modest";
    schedule good{};
    void operator()(search_state& state, const strategy_options&) const { state.offer(good, name); }
};

/// Without the builders that would find the optimum at once.
plan_options options_for(std::vector<std::string>& warnings) {
    plan_options options{.threads = 2};
    for_each_builder([&](const auto& build) {
        if (build.name != gpipe.name) options.without.emplace_back(build.name);
    });
    options.warn = [&](std::string_view sentence) { warnings.emplace_back(sentence); };
    return options;
}

std::size_t naming(const std::vector<std::string>& warnings, std::string_view text) {
    return static_cast<std::size_t>(std::count_if(warnings.begin(), warnings.end(), [&](const std::string& sentence) {
        return sentence.find(text) != std::string::npos;
    }));
}

} // namespace

TEST_CASE("an invalid schedule is left out and reported, and the search goes on") {
    const auto p = unit_problem(3, 6);
    const auto good = build_schedule(p, zero_bubble_h1);
    REQUIRE(good);
    REQUIRE(objective_of(p, *good) < objective_of(p, *build_schedule(p, gpipe)));
    for (const auto limit : {0.0, 0.05}) {
        CAPTURE(limit);
        std::vector<std::string> warnings;
        auto options = options_for(warnings);
        if (limit > 0.0) options.time_limit = std::chrono::duration<double>{limit};
        const liar bad;
        const auto planned = plan(p, options, {bad, modest{*good}});
        REQUIRE(planned);
        CHECK(*bad.calls > 0);
        CHECK(is_valid(p, planned->schedule));
        CHECK(planned->objective <= objective_of(p, *good));
        CHECK(naming(warnings, "liar: ") == 1);
        CHECK(naming(warnings, "an invalid schedule") == 1);
    }
}

TEST_CASE("what a strategy found before it broke a contract stays, what it would have done afterwards doesn't happen") {
    const auto p = unit_problem(3, 6);
    const auto good = build_schedule(p, one_forward_one_backward);
    REQUIRE(good);
    for (const bool deterministic : {false, true}) {
        CAPTURE(deterministic);
        std::vector<std::string> warnings;
        auto options = options_for(warnings);
        options.without.emplace_back(gpipe.name);
        options.time_limit = std::chrono::duration<double>{0.05};
        options.deterministic = deterministic;
        const auto planned = plan(p, options, {stumbler{*good}});
        REQUIRE(planned);
        CHECK(planned->method == "stumbler");
        CHECK(planned->objective == objective_of(p, *good));
        CHECK(planned->bound < planned->objective);
        CHECK(naming(warnings, "stumbler: stumbled") == 1);
    }
}

TEST_CASE("a bound above a schedule is left out and reported") {
    const auto p = unit_problem(3, 6);
    std::vector<std::string> warnings;
    const auto planned = plan(p, options_for(warnings), {boaster{}});
    REQUIRE(planned);
    CHECK(planned->why != plan_end::optimal);
    CHECK(planned->bound < planned->objective);
    CHECK(naming(warnings, "a bound above a schedule") == 1);
}

TEST_CASE("where failures aren't dropped they end the search") {
    std::vector<std::string> warnings;
    auto options = options_for(warnings);
    options.drop_failures = false;
    CHECK_THROWS_AS(static_cast<void>(plan(unit_problem(3, 6), options, {boaster{}})), contract_error);
    CHECK(warnings.empty());
}

TEST_CASE("a valid schedule below the bound takes it back") {
    const auto p = unit_problem(3, 6);
    const auto good = build_schedule(p, zero_bubble_h1);
    REQUIRE(good);
    std::size_t warnings = 0;
    search_state state{p, {}, {}, {true, [&](std::string_view) { ++warnings; }}};
    state.raise_bound(2.0 * objective_of(p, *good), "boaster");
    CHECK_FALSE(state.try_strategy("modest", [&] { state.offer(*good, "modest"); }));
    CHECK(state.objective() == objective_of(p, *good));
    CHECK(state.bound() == duration{});
    CHECK_FALSE(state.proven());
    CHECK(warnings == 1);
}
