#include "optpipe/core/random.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/robust_search.hpp"
#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/noise.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <string>
#include <utility>

using namespace optpipe;

namespace {

problem uneven_problem(std::size_t ranks, std::size_t microbatches) {
    per_stage<stage_costs> costs(ranks);
    for (const stage s : costs.indices()) {
        const double more = 1.0 + 0.15 * static_cast<double>((s.value() * 7) % 3);
        costs[s].forward = duration{more};
        costs[s].backward_input = duration{1.1 * more};
        costs[s].backward_weight = duration{0.9 * more};
        costs[s].activation = memory_size{1.0};
    }
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), std::move(costs)};
    p.p2p = hop_times<>{duration{0.1}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{static_cast<double>(microbatches)};
    return p;
}

plan_options robust_plan(double spread) {
    plan_options options;
    options.robust.emplace();
    options.robust->noise.spread = spread;
    options.robust->samples = 60;
    options.robust->effort = 1'000'000;
    options.threads = 1;
    return options;
}

/// Little effort, so that many problems can be planned.
struct quick_adaptive : adaptive_strategy {
    static std::size_t first_effort(const problem&) { return 2000; }
};

/// Counts the searches that end, and requests a stop at the end of one of them.
struct stopping_search {
    std::stop_source stop{};
    std::size_t stops_after = 0;
    std::size_t searches = 0;

    plan_result operator()(const problem& p, const plan_options&) {
        plan_result made;
        made.schedule = *build_schedule(p, gpipe);
        made.objective = made.bound = objective_of(p, made.schedule);
        made.why = plan_end::optimal;
        if (++searches == stops_after) stop.request_stop();
        return made;
    }
};

} // namespace

TEST_CASE("a robust plan is valid, and its percentile isn't above that of the plan without noise") {
    std::size_t lower = 0;
    for (std::size_t ranks = 2; ranks <= 4; ++ranks) {
        const auto p = uneven_problem(ranks, 6);
        auto options = robust_plan(0.1);
        if (ranks == 4) options.start = *build_schedule(p, gpipe); // easy to improve on
        const auto made = plan(p, options, {quick_adaptive{}});
        REQUIRE(made);
        REQUIRE(made->robust);
        const auto& numbers = *made->robust;
        CHECK(is_valid(p, made->schedule));
        CHECK(made->objective == objective_of(p, made->schedule));
        CHECK(made->bound <= made->objective);
        CHECK(numbers.percentile <= numbers.nominal_percentile);
        if (ranks < 4) CHECK(numbers.nominal_objective <= made->objective);
        CHECK(numbers.mean < numbers.percentile);
        CHECK((made->method == "robust") == (numbers.percentile < numbers.nominal_percentile));
        if (made->method == "robust") CHECK(made->why != plan_end::optimal);
        lower += numbers.percentile < numbers.nominal_percentile ? 1 : 0;
    }
    CHECK(lower > 0);
}

TEST_CASE("without a time limit the same seed gives the same robust plan") {
    const auto p = uneven_problem(3, 5);
    const auto one = plan(p, robust_plan(0.1), {quick_adaptive{}});
    const auto other = plan(p, robust_plan(0.1), {quick_adaptive{}});
    REQUIRE(one);
    REQUIRE(other);
    REQUIRE(one->schedule.operations.size() == other->schedule.operations.size());
    for (std::size_t i = 0; i < one->schedule.operations.size(); ++i)
        CHECK(one->schedule.operations[i] == other->schedule.operations[i]);
    CHECK(one->robust->percentile == other->robust->percentile);
}

TEST_CASE("orders are compared in few random steps once a stop is requested, and none is improved") {
    const auto p = uneven_problem(3, 5);
    const auto given = order_of(*build_schedule(p, gpipe));
    const robust_options options;
    std::stop_source source;
    const auto token = source.get_token();
    CHECK(detail::compare_orders(p, given, given, options.noise, 9, 2, stop_check{token}).second.size() == 9);
    source.request_stop();
    const auto few = detail::compare_orders(p, given, given, options.noise, 9, 2, stop_check{token});
    CHECK(few.first.size() == 2);
    CHECK(few.first == few.second);
    detail::robust_improver improver{p, options, stop_check{token}};
    CHECK_FALSE(improver.offer(given));
    CHECK(improver.best() == nullptr);
}

TEST_CASE("a stop request during any part of a robust plan ends it, and is why it ended") {
    const auto p = uneven_problem(3, 5);
    for (const std::size_t stops_after : {1, 2}) {
        stopping_search searches{.stops_after = stops_after};
        auto options = robust_plan(0.1);
        options.stop = searches.stop.get_token();
        const auto plan_nominally = [&](const problem& q, const plan_options& how) -> outcome<plan_result> {
            return searches(q, how);
        };
        const auto end = std::chrono::steady_clock::time_point::max();
        const auto made = detail::robust_planner{p, options, end, plan_nominally}.run();
        REQUIRE(made);
        CHECK(made->why == plan_end::stop_request);
        CHECK(searches.searches == stops_after);
    }
}

TEST_CASE("an order is taken if its percentile is less, or the same and its mean less, and no other") {
    const auto p = uneven_problem(3, 5);
    for (const double percentile : {50.0, 75.0, 90.0, 100.0}) {
        CAPTURE(percentile);
        const robust_options options{.noise = {.spread = 0.3}, .percentile = percentile, .samples = 20};
        const auto times_of = [&](const order& o) {
            const auto times = step_times(p, o, options.noise, options.samples);
            return std::pair{percentile_of(times, percentile), mean_of(times)};
        };
        detail::robust_improver improver{p, options, {}};
        auto best = one_at_a_time(p);
        REQUIRE(improver.offer(best));
        random_numbers random{1};
        std::size_t taken = 0;
        std::size_t refused = 0;
        for (int i = 0; i < 500; ++i) {
            auto moved = best;
            const auto at = [&](std::size_t k) { return moved.operations.begin() + static_cast<std::ptrdiff_t>(k); };
            const auto first = random.below(moved.operations.size() - 6);
            std::rotate(at(first), at(first + random.between(1, 5)), at(first + 6));
            if (!simulate(p, moved)) continue;
            const bool is_better = times_of(moved) < times_of(best);
            CHECK(improver.offer(moved) == is_better);
            ++(is_better ? taken : refused);
            if (is_better) best = moved;
        }
        CHECK(taken > 10);
        CHECK(refused > 10);
    }
}

TEST_CASE("without noise a robust plan is the plan") {
    const auto p = uneven_problem(3, 5);
    const auto made = plan(p, robust_plan(0.0), {quick_adaptive{}});
    const auto nominal = plan(p, {.threads = 1}, {quick_adaptive{}});
    REQUIRE(made);
    REQUIRE(nominal);
    CHECK(made->objective == nominal->objective);
    CHECK(made->robust->percentile == made->robust->nominal_percentile);
    CHECK(made->method == nominal->method);
}

TEST_CASE("robust options that make no sense are refused") {
    const auto p = uneven_problem(2, 3);
    auto options = robust_plan(0.1);
    const auto refused = [&](const std::string& part) {
        try {
            static_cast<void>(plan(p, options, {}));
        } catch (const input_error& e) {
            return std::string{e.what()}.find(part) != std::string::npos;
        }
        return false;
    };
    options.robust->percentile = 0.0;
    CHECK(refused("robust.percentile: must be above 0, at most 100"));
    options = robust_plan(-0.1);
    CHECK(refused("robust.noise.spread: must be finite and not negative"));
    options = robust_plan(0.1);
    options.robust->samples = 0;
    CHECK(refused("robust.samples: must not be 0"));
    options = robust_plan(0.1);
    options.robust->noise.rank_correlation = 1.5;
    CHECK(refused("robust.noise.rank_correlation: must be between 0 and 1"));
    options = robust_plan(0.1);
    options.robust->noise.straggler_factor = 0.0;
    CHECK(refused("robust.noise.straggler_factor: must be finite and above 0"));
}
