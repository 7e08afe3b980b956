#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "planner/cache/folder.hpp"
#include "planner/portfolio/fake_strategies.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

struct quick_adaptive : adaptive_strategy {
    static strategy_traits traits(const problem&) { return {.first_effort = 2000}; }
};

problem unit_problem(std::size_t ranks, std::size_t microbatches, double limit) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    unit.transfer = transfer_times{duration{1.3}, duration{1.3}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
    for (auto& l : p.memory_limit)
        l = memory_size{limit};
    return p;
}

} // namespace

TEST_CASE("the second time a plan comes from the cache, in whatever units and names") {
    const temporary_folder folder;
    std::atomic<std::size_t> calls{0};
    const auto strategies = fake::usual_with({quick_adaptive{}, fake::counter{&calls}});
    auto p = unit_problem(4, 8, 2.0);
    const plan_options options{.cache = folder.path().string()};
    const auto first = plan(p, options, strategies);
    REQUIRE(first);
    CHECK(first->cached == cache_use::none);
    CHECK(calls > 0);
    calls = 0;

    p.name = "another";
    p.change_stages([&](auto& c) {
        c.forward = c.backward_input = c.backward_weight = duration{0.3};
        c.transfer = transfer_times{duration{0.39}, duration{0.39}};
    });
    const auto second = plan(p, options, strategies);
    REQUIRE(second);
    CHECK(second->cached == cache_use::exact);
    CHECK(calls == 0);
    CHECK(second->method == first->method);
    CHECK(second->objective.value() == doctest::Approx(0.3 * first->objective.value()));
    CHECK(second->bound.value() == doctest::Approx(0.3 * first->bound.value()));
    CHECK(second->why == first->why);
    CHECK(oracle::judge(p, second->schedule).valid());
}

TEST_CASE("a larger budget than that of the cached plan is spent") {
    const temporary_folder folder;
    std::atomic<std::size_t> calls{0};
    // The constructive planner proves its plan with all its effort: then no other strategy is called.
    const auto strategies = fake::usual_with({fake::counter{&calls}});
    const auto p = unit_problem(4, 8, 2.0);
    plan_options options{.without = {"zb-auto"}, .cache = folder.path().string()};
    REQUIRE(plan(p, options, strategies));
    // It was made with less than all builders and strategies.
    calls = 0;
    options.without.clear();
    CHECK(plan(p, options, strategies)->cached == cache_use::exact);
    CHECK(calls > 0);
    calls = 0;
    CHECK(plan(p, options, strategies)->cached == cache_use::exact);
    CHECK(calls == 0);
    options.time_limit = std::chrono::duration<double>{2.0};
    CHECK(plan(p, options, strategies)->cached == cache_use::exact);
    CHECK(calls > 0);
}

TEST_CASE("a plan of a few strategies doesn't settle a search with others") {
    const temporary_folder folder;
    std::atomic<std::size_t> calls{0};
    const auto p = unit_problem(4, 8, 2.0);
    const plan_options options{.cache = folder.path().string()};
    REQUIRE(plan(p, options, {quick_adaptive{}}));
    CHECK(plan(p, options, fake::usual_with({quick_adaptive{}, fake::counter{&calls}}))->cached == cache_use::exact);
    CHECK(calls > 0);
}

TEST_CASE("with a time limit the search goes on from a kept plan, unless that is proven") {
    const temporary_folder folder;
    std::atomic<std::size_t> calls{0};
    const auto strategies = fake::usual_with({quick_adaptive{}, fake::counter{&calls}});
    // Enough time for a strategy to be called on any machine; the search ends sooner.
    const plan_options options{.time_limit = std::chrono::duration<double>{2.0}, .cache = folder.path().string()};
    std::size_t open = 0;
    for (double limit = 2.0; limit <= 4.0; limit += 0.5 * static_cast<double>(oracle::stride(2))) {
        auto p = unit_problem(5, 11, limit);
        for (auto& c : p.costs)
            c.backward_weight = duration{0.7};
        const auto first = plan(p, options, strategies);
        REQUIRE(first);
        if (first->why == plan_end::optimal) continue;
        ++open;
        calls = 0;
        const auto second = plan(p, options, strategies);
        REQUIRE(second);
        CHECK(second->cached == cache_use::exact);
        const bool went_on = calls > 0 || second->why == plan_end::optimal; // builders may prove it with more time
        CHECK(went_on);
        CHECK(second->objective.value() <= doctest::Approx(first->objective.value()));
        CHECK(second->bound.value() >= doctest::Approx(first->bound.value()));
    }
    REQUIRE(open > 0);

    const auto small = unit_problem(2, 2, 2.0);
    const auto proven = plan(small, options);
    REQUIRE(proven);
    REQUIRE(proven->why == plan_end::optimal);
    calls = 0;
    CHECK(plan(small, options, strategies)->why == plan_end::optimal);
    CHECK(calls == 0);
}

TEST_CASE("a plan interrupted by a stop request or a gap doesn't settle later searches") {
    const temporary_folder folder;
    const auto p = unit_problem(4, 8, 2.0);
    plan_options options{.cache = folder.path().string()};
    std::stop_source source;
    options.stop = source.get_token();
    REQUIRE(plan(p, options, {fake::stopper{source}})->why == plan_end::stop_request);
    options.stop = {};
    options.gap = 0.9;
    REQUIRE(plan(p, options, {})->why == plan_end::gap);
    options.gap = 0.0;
    std::atomic<std::size_t> calls{0};
    REQUIRE(plan(p, options, {fake::counter{&calls}}));
    CHECK(calls > 0);
    options.gap = 0.9;
    const auto enough = plan(p, options, {fake::counter{&calls}});
    CHECK(enough->cached == cache_use::exact);
}

TEST_CASE("other microbatches, costs and limits start from cached plans") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(60); ++seed) {
        CAPTURE(seed);
        const temporary_folder folder;
        const plan_options options{.seed = seed, .cache = folder.path().string()};
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 3, .stages = 6, .microbatches = 5, .cells = 15}).problem;
        REQUIRE(plan(p, options, {quick_adaptive{}}));
        auto like = p;
        like.costs[stage{0}].forward = 1.05 * like.costs[stage{0}].forward;
        for (auto& limit : like.memory_limit)
            limit = limit + memory_size{1.0};
        const auto alone = plan(like, {.seed = seed}, {quick_adaptive{}});
        const auto warm = plan(like, options, {quick_adaptive{}});
        REQUIRE(warm);
        REQUIRE(alone);
        CHECK(warm->cached == cache_use::near);
        CHECK(warm->bound <= warm->objective);
        CHECK(alone->bound <= warm->objective + tolerance{}.at(like.serial_time()));
        CHECK(warm->bound <= alone->objective + tolerance{}.at(like.serial_time()));
        CHECK(oracle::judge(like, warm->schedule).valid());
    }
}

TEST_CASE("graphs and draws: the same one is found again, and others start from its plan") {
    std::size_t near = 0;
    const auto cases = oracle::random_cases(60);
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        CAPTURE(seed);
        const temporary_folder folder;
        const plan_options options{.seed = seed, .cache = folder.path().string()};
        random_numbers random{seed};
        const auto p = testing::make_random_problem(
                           random, {.ranks = 3, .stages = 6, .microbatches = 5, .cells = 15, .graph_percent = 100})
                           .problem;
        if (is_plain(p)) continue;
        const auto first = plan(p, options, {quick_adaptive{}});
        REQUIRE(first);
        const auto again = plan(p, options, {quick_adaptive{}});
        REQUIRE(again);
        CHECK(again->cached == cache_use::exact);
        CHECK(again->objective <= first->objective);
        if (!p.microbatches.has_factors() || p.microbatches.is_by_stage()) continue;
        auto next = p;
        std::vector<cost_factors> factors;
        for (const microbatch m : p.graph.all_microbatches()) {
            factors.push_back(p.microbatches.factors(stage{0}, m));
            factors.back().forward = 1.5 * factors.back().forward;
        }
        next.microbatches.set_factors(factors);
        const auto warm = plan(next, options, {quick_adaptive{}});
        REQUIRE(warm);
        near += warm->cached == cache_use::near ? 1 : 0;
        CHECK(warm->bound <= warm->objective);
        CHECK(oracle::judge(next, warm->schedule).text() == "");
    }
    if (cases >= 60) CHECK(near > 10);
}

TEST_CASE("a damaged cache is reported, and the plan is made all the same") {
    const temporary_folder folder;
    const auto p = unit_problem(3, 6, 2.0);
    std::vector<std::string> warnings;
    plan_options options{.cache = folder.path().string()};
    options.warn = [&](std::string_view w) { warnings.emplace_back(w); };
    const auto first = plan(p, options, {quick_adaptive{}});
    REQUIRE(first);
    REQUIRE(folder.files().size() == 1);
    temporary_folder::write(folder.files().front(), "garbage");
    const auto second = plan(p, options, {quick_adaptive{}});
    REQUIRE(second);
    CHECK(second->cached == cache_use::none);
    CHECK(second->schedule.operations == first->schedule.operations);
    CHECK(warnings.size() == 1);
    CHECK(plan(p, options, {quick_adaptive{}})->cached == cache_use::exact);
}

TEST_CASE("nothing is written where nothing is asked for, nor where there is no plan") {
    const temporary_folder folder;
    auto p = unit_problem(2, 2, 2.0);
    REQUIRE(plan(p, {}, {}));
    CHECK(folder.files().empty());
}
