#include "optpipe/planner/background_planner.hpp"

#include "optpipe/planner/portfolio/processor_share.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
    p.p2p = hop_times<>{duration{0.3}}; // so the bounds alone prove nothing
    return p;
}

struct search_log {
    std::atomic<std::size_t> begun{0};
    std::atomic<std::size_t> ended{0};
    std::mutex mutex{};
    std::vector<std::thread::id> threads{};
    std::size_t most_at_once = 0;
};

/// Searches nothing until it is told to stop.
struct endless {
    static constexpr std::string_view name = "endless";
    static constexpr bool randomized = true;
    std::shared_ptr<search_log> log = std::make_shared<search_log>();

    void operator()(search_state& state, const strategy_options&) const {
        {
            const std::scoped_lock lock{log->mutex};
            log->threads.push_back(std::this_thread::get_id());
            ++log->begun;
            log->most_at_once = std::max<std::size_t>(log->most_at_once, log->begun - log->ended);
        }
        while (!state.limits().stop.stop_requested())
            std::this_thread::yield();
        ++log->ended;
    }
};

struct throws_a_number {
    static constexpr std::string_view name = "throws-a-number";
    void operator()(search_state&, const strategy_options&) const { throw 1; }
};

template <class Condition> void wait_until(const Condition& holds) {
    while (!holds())
        std::this_thread::sleep_for(1ms);
}
constexpr auto long_enough = 300s; // only reached if something is broken

/// Only these strategies: no builder finds the optimum before them.
background_options with(std::vector<any_search_strategy> strategies) {
    background_options options;
    options.strategies = std::move(strategies);
    for_each_builder([&](const auto& build) { options.how.without.emplace_back(build.name); });
    return options;
}
schedule start_for(const problem& p) { return *build_schedule(p, gpipe); }

} // namespace

TEST_CASE("a submission is planned in the background until nothing is left to try") {
    const auto p = unit_problem(3, 4);
    background_planner planner{{}};
    CHECK(planner.poll().submission == 0);
    CHECK(planner.submit(p) == 1);
    REQUIRE(planner.wait_for(long_enough));
    const auto best = planner.poll();
    CHECK(best.submission == 1);
    CHECK(best.finished);
    CHECK(best.failure.empty());
    REQUIRE(best.schedule);
    CHECK(is_valid(p, *best.schedule));
    CHECK(best.objective == objective_of(p, *best.schedule));
    CHECK(best.version > 0);
    CHECK(best.bound <= best.objective);
    const auto alone = plan(p, {.time_limit = 300s});
    REQUIRE(alone);
    CHECK(best.objective.value() == doctest::Approx(alone->objective.value()));
}

TEST_CASE("a submission with a start has that at once, and a bad start is a failure") {
    const auto p = unit_problem(4, 8);
    background_planner planner{with({})};
    planner.submit(p, *build_schedule(p, gpipe));
    REQUIRE(planner.wait_for(long_enough));
    CHECK(planner.poll().method == "start");
    CHECK(planner.poll().version == 1);
    CHECK(planner.poll().objective == objective_of(p, *build_schedule(p, gpipe)));

    planner.submit(unit_problem(4, 7), *build_schedule(p, gpipe));
    REQUIRE(planner.wait_for(long_enough));
    CHECK(planner.poll().failure.find("plan options: start: is of another pipeline: ") == 0);
    CHECK(planner.poll().schedule == nullptr);

    auto impossible = p;
    impossible.memory_limit[rank{0}] = memory_size{0.5};
    planner.submit(impossible);
    REQUIRE(planner.wait_for(long_enough));
    CHECK(planner.poll().failure.find("memory_limit[0]") != std::string::npos);

    planner.submit(p, *build_schedule(p, gpipe));
    REQUIRE(planner.wait_for(long_enough));
    CHECK(planner.poll().version == 2);
    CHECK(planner.poll().submission == 4);
}

TEST_CASE("a submission replaces the one before at once, on other threads than the caller's") {
    const endless search;
    auto options = with({search});
    options.threads = 2;
    {
        background_planner planner{options};
        const auto first = unit_problem(4, 8);
        const auto second = unit_problem(3, 5);
        planner.submit(first, start_for(first));
        wait_until([&] { return search.log->begun > 0; });
        CHECK(planner.poll().submission == 1);
        CHECK(planner.poll().schedule);
        CHECK(planner.submit(second, start_for(second)) == 2);
        const auto replaced = planner.poll();
        CHECK(replaced.submission == 2);
        CHECK_FALSE(replaced.finished);
        if (replaced.schedule) CHECK(replaced.schedule->graph.ranks() == 3);
        wait_until([&] { return planner.poll().schedule != nullptr; });
        CHECK(planner.poll().schedule->graph.ranks() == 3);
        CHECK(search.log->ended > 0);
        // The stopped search reported its end for the previous submission.
        CHECK_FALSE(planner.poll().finished);
        CHECK(planner.poll().failure.empty());
        wait_until([&] { return search.log->begun > search.log->ended; });
    }
    CHECK(search.log->begun == search.log->ended);
    for (const auto& id : search.log->threads)
        CHECK(id != std::this_thread::get_id());
}

TEST_CASE("what a search finds after it was replaced isn't reported") {
    const auto first = unit_problem(4, 8);
    const auto second = unit_problem(3, 5);
    std::vector<background_plan> reported; // before each report
    std::optional<background_planner> planner;
    auto options = with({});
    options.adapt = [&](const problem&, const auto& found) {
        if (planner->poll().submission == 1) planner->submit(second, start_for(second));
        reported.push_back(planner->poll());
        return found;
    };
    planner.emplace(options);
    planner->submit(first, start_for(first));
    REQUIRE(planner->wait_for(long_enough));
    CHECK(planner->poll().submission == 2);
    REQUIRE(planner->poll().schedule);
    CHECK(planner->poll().schedule->graph.ranks() == 3);
    REQUIRE(reported.size() >= 2);
    CHECK(reported[1].schedule == nullptr);
    CHECK_FALSE(reported[1].finished);
}

TEST_CASE("what `adapt` makes is published only if it is a valid schedule") {
    if (!contracts_throw()) return;
    const auto p = unit_problem(3, 5);
    const auto published = [&](const schedule& made) {
        auto options = with({});
        options.adapt = [made](const problem&, const auto&) { return std::make_shared<const schedule>(made); };
        background_planner planner{options};
        planner.submit(p, start_for(p));
        REQUIRE(planner.wait_for(long_enough));
        return planner.poll();
    };
    const auto valid = *build_schedule(p, gpipe);
    REQUIRE(published(valid).schedule);
    CHECK(published(valid).failure.empty());
    auto incomplete = valid;
    incomplete.operations.pop_back();
    for (const auto& broken : {schedule{}, schedule{p.graph, {}}, incomplete}) {
        const auto last = published(broken);
        CHECK(last.schedule == nullptr);
        CHECK(last.version == 0);
        CHECK(last.failure.find("`adapt` made an invalid schedule") != std::string::npos);
    }
}

TEST_CASE("no more searches run at once than there are threads") {
    const endless search;
    {
        background_planner planner{with({search})};
        const auto p = unit_problem(4, 8);
        planner.submit(p, start_for(p));
        wait_until([&] { return search.log->begun > 0; });
        CHECK(search.log->begun == 1);
        for (int i = 0; i < 20; ++i)
            planner.submit(p, start_for(p));
        CHECK(planner.poll().submission == 21);
    }
    CHECK(search.log->most_at_once == 1);
    CHECK(search.log->begun == search.log->ended);
}

TEST_CASE("the processor time of a search is counted") {
    background_planner planner{{}};
    planner.submit(unit_problem(3, 4));
    REQUIRE(planner.wait_for(long_enough));
    const auto after_one = planner.processor_seconds();
    CHECK(after_one > 0.0);
    planner.submit(unit_problem(4, 4));
    REQUIRE(planner.wait_for(long_enough));
    CHECK(planner.processor_seconds() > after_one);
}

TEST_CASE("a thread that has used more than its share waits until it is paid back, or a stop is requested") {
    processor_share nothing_to_speak_of{1e-9};
    std::stop_source stop;
    std::atomic<std::size_t> done{0};
    std::thread worker{[&] {
        nothing_to_speak_of.enter();
        const auto begin = nothing_to_speak_of.seconds();
        while (nothing_to_speak_of.seconds() < begin + 1e-3) {
        }
        ++done;
        nothing_to_speak_of.pause_if_over(stop.get_token());
        ++done;
        nothing_to_speak_of.leave();
    }};
    wait_until([&] { return done > 0; });
    CHECK(nothing_to_speak_of.seconds() > 0.0);
    std::this_thread::sleep_for(5ms);
    CHECK(done == 1); // for eleven days
    stop.request_stop();
    worker.join();
    CHECK(done == 2);
    CHECK(nothing_to_speak_of.seconds() >= 1e-3);

    processor_share until_now{1e-9};
    until_now.enter();
    const auto begin = until_now.seconds();
    while (until_now.seconds() < begin + 1e-3) {
    }
    until_now.pause_if_over({}, std::chrono::steady_clock::now()); // not for eleven days

    processor_share unlimited;
    unlimited.enter();
    unlimited.pause_if_over({});
    CHECK(unlimited.seconds() > 0.0);
    unlimited.leave_all();
    const auto left = unlimited.seconds();
    CHECK(unlimited.seconds() == left);

    const int one = 0, other = 0;
    unlimited.enter(&one);
    unlimited.enter(&other);
    unlimited.leave_all(&one);
    const auto after_one = unlimited.seconds();
    while (unlimited.seconds() < after_one + 1e-3) {
    } // the other search still counts
    unlimited.leave(&one);
    unlimited.leave(&other);
    const auto after_both = unlimited.seconds();
    CHECK(unlimited.seconds() == after_both);
}

TEST_CASE("whatever a strategy throws is a failure, not the end of the program") {
    background_planner planner{with({throws_a_number{}})};
    const auto p = unit_problem(4, 8);
    planner.submit(p, start_for(p));
    REQUIRE(planner.wait_for(std::chrono::duration<double>{std::numeric_limits<double>::infinity()}));
    CHECK(planner.poll().failure == "an exception that isn't a std::exception");
}

TEST_CASE("a gap isn't reached before there is a schedule") {
    const search_state state{unit_problem(2, 4), {.gap = 0.5}};
    CHECK_FALSE(state.settled());
}

TEST_CASE("what an abandoned search has under way is dropped") {
    const auto p = unit_problem(3, 5);
    const auto start = start_for(p);
    std::stop_source abandoned;
    search_state state{p, {.abandon = abandoned.get_token()}};
    CHECK_FALSE(state.abandoned());
    const auto value = state.offer(start, "first");
    const auto better = *build_schedule(p, zero_bubble_h1);
    REQUIRE(objective_of(p, better) < value);
    abandoned.request_stop();
    CHECK(state.abandoned());
    state.offer(better, "second");
    CHECK(state.offer(order{p.graph, order_of(better).operations}, "second").is_unlimited());
    state.offer_timed(better, "second");
    CHECK(state.objective() == value);

    const auto token = abandoned.get_token();
    const stop_check stop{token};
    auto pulled_apart = p;
    pulled_apart.objective = objective_kind::span;
    CHECK(time_order(pulled_apart, order_of(start)));
    CHECK_FALSE(time_order(pulled_apart, order_of(start), stop)); // two passes
}

TEST_CASE("a plan that whoever stops it doesn't read isn't made") {
    const auto p = unit_problem(4, 8);
    std::stop_source stop;
    plan_options how;
    how.start = start_for(p);
    how.stop = stop.get_token();
    how.progress = [&](const search_progress&) { stop.request_stop(); };
    CHECK(plan(p, how));
    stop = std::stop_source{};
    how.stop = stop.get_token();
    how.stops_without_plan = true;
    const auto made = plan(p, how);
    REQUIRE_FALSE(made);
    CHECK(describe(made.why()).find("stopped") != std::string::npos);
}
