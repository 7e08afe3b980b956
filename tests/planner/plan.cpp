#include "optpipe/planner/plan.hpp"

#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/schedule/time/value.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "planner/portfolio/fake_strategies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <stdexcept>
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

/// The constructive planner with little effort, so that many problems can be planned.
struct quick_adaptive : adaptive_strategy {
    static strategy_traits traits(const problem&) { return {.first_effort = 2000}; }
};

/// Replaces the constructive planner.
struct recorder {
    static constexpr std::string_view name = adaptive_strategy::name;
    std::vector<std::size_t>* efforts = nullptr;
    void operator()(search_state&, const strategy_options& options) const { efforts->push_back(options.effort); }
};

std::vector<any_search_strategy> quick_parts() { return {quick_adaptive{}, fake::shuffler{}}; }

void check_laws(const problem& p, const plan_result& r) {
    const auto judged = oracle::judge(p, r.schedule);
    CHECK_MESSAGE(judged.valid(), (judged.valid() ? "" : judged.broken.front()));
    CHECK(r.objective.value() == doctest::Approx(objective_of(p, r.schedule).value()));
    CHECK(r.bound <= r.objective);
    CHECK(r.gap >= 0.0);
    for (const auto& b : r.builders)
        if (b.objective) CHECK((r.objective <= *b.objective || is_same_sum(r.objective, *b.objective)));
    REQUIRE_FALSE(r.history.empty());
    for (std::size_t i = 1; i < r.history.size(); ++i) {
        CHECK(r.history[i].objective <= r.history[i - 1].objective);
        CHECK(r.history[i].bound + tolerance{}.at(p.serial_time()) >= r.history[i - 1].bound);
        CHECK(r.history[i].seconds >= r.history[i - 1].seconds);
    }
    CHECK(r.history.back().objective == r.objective);
    CHECK((r.why == plan_end::optimal) == (r.objective - r.bound <= tolerance{}.at(p.serial_time())));
    const auto finder =
        std::find_if(r.contributions.begin(), r.contributions.end(), [&](const auto& e) { return e.name == r.method; });
    REQUIRE(finder != r.contributions.end());
    CHECK(finder->objective == r.objective);
    CHECK(finder->runs > 0);
    std::size_t steps = 0;
    for (const auto& strategy : r.contributions)
        steps += strategy.schedules + strategy.bounds;
    CHECK(steps >= r.history.size());
}

} // namespace

TEST_CASE("plans of random problems: valid, no worse than any builder, and with a bound") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(150); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random).problem;
        plan_options options{.threads = 1 + seed % 3, .seed = seed};
        if (seed % 4 == 0) options.time_limit = std::chrono::milliseconds{2};
        const auto planned = plan(p, options, quick_parts());
        REQUIRE(planned);
        check_laws(p, *planned);
    }
}

TEST_CASE("without a time limit the seed decides, not the number of threads") {
    for (std::uint64_t seed = 1; seed <= 10; seed += oracle::stride(4)) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random, {.ranks = 4, .microbatches = 6, .cells = 30}).problem;
        const auto alone = plan(p, {.threads = 1, .seed = seed}, quick_parts());
        REQUIRE(alone);
        for (const std::size_t threads : {1U, 2U, 4U}) {
            const auto together = plan(p, {.threads = threads, .seed = seed}, quick_parts());
            REQUIRE(together);
            CHECK(together->schedule.operations == alone->schedule.operations);
            CHECK(together->bound == alone->bound);
            CHECK(together->method == alone->method);
        }
    }
}

TEST_CASE("the plan names the strategy that found it, and the best published schedule") {
    const auto p = unit_problem(4, 8);
    const auto planned = plan(p, {}, {fake::oracle{*one_forward_one_backward(p)}});
    REQUIRE(planned);
    const auto* published = best_published(*planned);
    REQUIRE(published != nullptr);
    CHECK(planned->method == published->method);
    CHECK(published->method == "zb-h1");
    CHECK(planned->why == plan_end::optimal);

    // Only the oracle searches.
    plan_options alone;
    for_each_builder([&](const auto& build) { alone.without.emplace_back(build.name); });
    const auto by_oracle = plan(p, alone, {fake::oracle{*one_forward_one_backward(p)}});
    REQUIRE(by_oracle);
    CHECK(by_oracle->method == "oracle");
    CHECK(by_oracle->builders.empty());
    CHECK(best_published(*by_oracle) == nullptr);
    CHECK(by_oracle->why == plan_end::optimal);
}

TEST_CASE("without strategies and builders there is still a schedule") {
    const auto p = unit_problem(3, 4);
    plan_options options;
    for_each_builder([&](const auto& build) { options.without.emplace_back(build.name); });
    for (const auto& limit : {std::optional<std::chrono::duration<double>>{}, {std::chrono::duration<double>{0.0}}}) {
        options.time_limit = limit;
        const auto planned = plan(p, options, {});
        REQUIRE(planned);
        CHECK(planned->method == "adaptive");
        CHECK(oracle::judge(p, planned->schedule).valid());
    }
}

TEST_CASE("without time there is a schedule that uses the memory, even if no published one fits") {
    auto p = unit_problem(8, 64);
    for (auto& limit : p.memory_limit)
        limit = memory_size{6.0};
    const auto planned = plan(p, {.time_limit = std::chrono::duration<double>{0.0}, .without = {"gis", "gis-h"}});
    REQUIRE(planned);
    CHECK(planned->why == plan_end::time_limit);
    check_laws(p, *planned);
    // One microbatch at a time would take the serial time.
    CHECK(3.0 * planned->objective < p.serial_time());
}

TEST_CASE("where only builders that search fit, there is a schedule before they do") {
    auto p = unit_problem(4, 8);
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.0};
    const auto r = plan(p, {.threads = 2});
    REQUIRE(r);
    for (const auto& b : r->builders)
        if (b.objective) CHECK(b.method == "zb-auto");
    const auto first = std::find_if(r->history.begin(), r->history.end(),
                                    [](const search_step& step) { return !step.objective.is_unlimited(); });
    REQUIRE(first != r->history.end());
    CHECK(first->strategy == "adaptive");
    const auto without = plan(p, {.threads = 2, .without = {"adaptive"}});
    REQUIRE(without);
    CHECK(std::none_of(without->history.begin(), without->history.end(),
                       [](const search_step& step) { return step.strategy == "adaptive"; }));
}

TEST_CASE("with a time limit the constructive planner has all its effort first, and then its turn is over") {
    const auto p = unit_problem(4, 8);
    std::vector<std::size_t> efforts;
    plan_options options{.time_limit = std::chrono::hours{1}, .threads = 1, .without = {"zb-h1", "zb-h2", "zb-auto"}};
    REQUIRE(plan(p, options, {recorder{&efforts}}));
    CHECK(efforts == std::vector{adaptive_strategy::most_effort});
}

TEST_CASE("why it ended") {
    const auto p = unit_problem(4, 8);
    plan_options options;
    for (const auto* name : {"zb-h1", "zb-h2", "zb-auto", "adaptive"})
        options.without.emplace_back(name);
    const std::vector<any_search_strategy> idle{fake::shuffler{}};
    const auto end = [&](const plan_options& o, const std::vector<any_search_strategy>& strategies) {
        return plan(p, o, strategies)->why;
    };
    CHECK(end(options, {adaptive_strategy{}}) == plan_end::effort_spent);
    options.gap = 0.5;
    CHECK(end(options, {adaptive_strategy{}}) == plan_end::gap);
    options.gap = 0.0;
    options.time_limit = std::chrono::duration<double>{0.0};
    CHECK(end(options, {adaptive_strategy{}}) == plan_end::time_limit);
    options.time_limit = std::chrono::milliseconds{1};
    CHECK(end(options, {fake::endless{}, adaptive_strategy{}}) == plan_end::time_limit);
    options.time_limit = std::chrono::duration<double>{std::numeric_limits<double>::infinity()};
    std::stop_source source;
    options.stop = source.get_token();
    CHECK(end(options, {fake::stopper{source}, fake::endless{}, adaptive_strategy{}}) == plan_end::stop_request);
    CHECK(end(options, {fake::endless{}, adaptive_strategy{}}) == plan_end::stop_request);
    options.time_limit.reset();
    CHECK(end(options, {fake::endless{}, adaptive_strategy{}}) == plan_end::stop_request);
}

TEST_CASE("where no schedule exists, the refusal names rank and memory") {
    auto each = unit_problem(2, 4).costs[stage{0}];
    each.activation = memory_size{4.0};
    each.transfer = transfer_times{duration{1.0}, duration{1.0}};
    const placement::map<> both{per_stage<rank>(2, rank{0})};
    problem crowded{any_graph{1, 4, both}, per_stage<stage_costs>(2, each)};
    crowded.memory_limit[rank{0}] = memory_size{5.0};
    crowded.host_memory_limit[rank{0}] = memory_size{1.0};
    REQUIRE(validate(crowded).empty());
    const auto planned = plan(crowded, {}, quick_parts());
    REQUIRE_FALSE(planned);
    CHECK(planned.why().reason == refusal_reason::over_memory);
    CHECK(planned.why().rank == rank{0});
    CHECK(planned.why().needed == memory_size{8.0});
}

TEST_CASE("exceptions of strategies and callbacks are rethrown") {
    const auto p = unit_problem(3, 6);
    plan_options options{.without = {"zb-h1", "zb-h2", "zb-auto"}};
    for (const bool limited : {false, true}) {
        if (limited) options.time_limit = std::chrono::duration<double>{60.0};
        CHECK_THROWS_WITH_AS(static_cast<void>(plan(p, options, {fake::thrower{}, fake::shuffler{}})), "thrown",
                             std::runtime_error);
    }
    options.progress = [](const search_step&) { throw std::runtime_error{"progress"}; };
    CHECK_THROWS_WITH_AS(static_cast<void>(plan(p, options, {fake::shuffler{}})), "progress", std::runtime_error);
}

TEST_CASE("invalid options are refused with the name of the field") {
    auto p = unit_problem(2, 2);
    const auto refused = [&](const plan_options& options, const std::string& field) {
        try {
            static_cast<void>(plan(p, options, quick_parts()));
        } catch (const input_error& e) {
            return std::string{e.what()}.find(field) != std::string::npos;
        }
        return false;
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(refused({.time_limit = std::chrono::duration<double>{-1.0}}, "time_limit"));
    CHECK(refused({.time_limit = std::chrono::duration<double>{nan}}, "time_limit"));
    CHECK(refused({.gap = -0.5}, "gap"));
    CHECK(refused({.gap = nan}, "gap"));
    CHECK(refused({.gap = 2.0}, "gap"));
    CHECK(refused({.without = {"gpipe", "nobody"}}, "there is no \"nobody\"; there are gpipe, "));
    p.costs[stage{0}].forward = duration{-1.0};
    CHECK(refused({}, "stages[0].forward"));
}
