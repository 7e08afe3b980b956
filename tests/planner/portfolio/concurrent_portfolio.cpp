#include "optpipe/planner/portfolio/concurrent_portfolio.hpp"

#include "optpipe/parallel/arena.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "planner/portfolio/fake_strategies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

void run(search_state& state, const std::vector<any_search_strategy>& strategies, std::size_t threads, run_log& log) {
    state.offer(one_at_a_time(state.problem()), "start");
    parallel::arena arena{std::min(threads, parallel::available_cores())};
    arena.execute([&] { run_concurrent_portfolio(state, strategies, {.threads = threads}, log); });
}

/// Finds nothing, and records its efforts.
struct recorder {
    static constexpr std::string_view name = "recorder";
    struct record {
        std::mutex mutex{};
        std::vector<strategy_options> calls{};
        std::size_t at_work = 0;
        std::size_t most_at_work = 0;
    };
    record* to = nullptr;
    std::size_t stop_after = 0;
    std::stop_source source{};

    void operator()(search_state&, const strategy_options& options) const {
        {
            const std::scoped_lock lock{to->mutex};
            to->most_at_work = std::max(to->most_at_work, ++to->at_work);
            to->calls.push_back(options);
            if (to->calls.size() == stop_after) std::stop_source{source}.request_stop();
        }
        const std::scoped_lock lock{to->mutex};
        --to->at_work;
    }
};
struct randomized_recorder : recorder {
    static strategy_traits traits(const problem&) { return {.randomized = true}; }
};

struct randomized_counter : fake::counter {
    static strategy_traits traits(const problem&) { return {.randomized = true}; }
};

/// Ends once two calls are running.
struct cooperative : recorder {
    static strategy_traits traits(const problem&) { return {.cooperative = true}; }
    void operator()(search_state& state, const strategy_options& options) const {
        {
            const std::scoped_lock lock{to->mutex};
            to->calls.push_back(options);
            if (++to->at_work == 2) std::stop_source{source}.request_stop();
        }
        while (!state.done()) {
        }
    }
};

struct resuming_recorder : recorder {
    static strategy_traits traits(const problem&) { return {.resumes = true}; }
};

/// Only polls for stop requests, as an external solver does; without one, for a minute.
struct waits_for_stop {
    static constexpr std::string_view name = "waits-for-stop";
    std::atomic<bool>* begun = nullptr;
    std::atomic<bool>* stopped = nullptr;
    void operator()(search_state& state, const strategy_options&) const {
        *begun = true;
        const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds{60};
        while (!state.limits().stop.stop_requested() && std::chrono::steady_clock::now() < latest)
            std::this_thread::yield();
        *stopped = state.limits().stop.stop_requested();
    }
};
struct late_prover : fake::prover {
    const std::atomic<bool>* other_begun = nullptr;
    void operator()(search_state& state, const strategy_options& options) const {
        while (!*other_begun)
            std::this_thread::yield();
        fake::prover::operator()(state, options);
    }
};

/// Ignores stop requests until half of the remaining time has passed.
struct deaf {
    static constexpr std::string_view name = "deaf";
    std::chrono::steady_clock::time_point deadline{};
    std::atomic<std::size_t>* calls = nullptr;
    void operator()(search_state&, const strategy_options&) const {
        ++*calls;
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < deadline - std::chrono::steady_clock::now()) {
        }
    }
};

} // namespace

TEST_CASE("a strategy isn't started if its shortest time slice was longer than the time left") {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{400};
    search_state state{unit_problem(3, 4), {.deadline = deadline}};
    std::atomic<std::size_t> calls = 0;
    run_log log;
    run(state, {deaf{deadline, &calls}}, 1, log);
    CHECK(calls <= 1);
    CHECK(state.done());
}

TEST_CASE("results of all strategies end up in the shared state, under their names") {
    const auto p = unit_problem(3, 6);
    for (const std::size_t threads : {1U, 2U, 4U}) {
        search_state state{p};
        run_log log;
        run(state, {fake::shuffler{}, fake::oracle{*zero_bubble_h1(p)}}, threads, log);
        CHECK(state.proven());
        CHECK(state.history().back().strategy == "oracle");
        const auto strategies = log.with(state.history());
        const auto oracle =
            std::find_if(strategies.begin(), strategies.end(), [](const auto& e) { return e.name == "oracle"; });
        REQUIRE(oracle != strategies.end());
        CHECK(oracle->runs == 1);
        CHECK(oracle->bounds == 1);
        CHECK(oracle->bound == state.objective());
    }
}

TEST_CASE("a portfolio of strategies that have nothing left to try ends") {
    const auto p = unit_problem(2, 4);
    for (const std::size_t threads : {1U, 2U, 4U}) {
        search_state state{p};
        run_log log;
        std::atomic<std::size_t> calls{0};
        std::atomic<std::size_t> unsuited{0};
        std::atomic<std::size_t> drawn{0};
        run(state, {fake::counter{&calls}, randomized_counter{{&drawn}}, fake::counter{&unsuited, false}}, threads,
            log);
        CHECK(calls >= 2);
        CHECK(drawn >= 2);
        CHECK(unsuited == 0);
        CHECK_FALSE(state.done());
    }
    search_state nothing{p};
    run_log log;
    run(nothing, {}, 2, log);
}

TEST_CASE("efforts grow; only randomized strategies get seeds of their own, and run several times at once") {
    const auto p = unit_problem(2, 4);
    std::stop_source source;
    recorder::record drawn;
    search_state state{p, {.stop = source.get_token()}};
    run_log log;
    run(state, {randomized_recorder{{&drawn, 12, source}}}, 2, log);
    REQUIRE(drawn.calls.size() >= 12);
    // Seeds give the order of the starts: either of two concurrent calls may be recorded first.
    std::sort(drawn.calls.begin(), drawn.calls.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
    for (std::size_t i = 1; i < drawn.calls.size(); ++i) {
        CHECK(drawn.calls[i].effort >= drawn.calls[i - 1].effort);
        CHECK(drawn.calls[i].seed != drawn.calls[i - 1].seed);
    }
    CHECK(drawn.calls.back().effort > 16 * drawn.calls.front().effort);

    recorder::record plain;
    search_state other{p};
    run(other, {recorder{&plain}}, 4, log);
    CHECK(plain.most_at_work == 1);
    for (const auto& call : plain.calls)
        CHECK(call.seed == plain.calls.front().seed);
}

TEST_CASE("the effort of strategies that begin anew grows faster than that of those that resume") {
    const auto efforts = [](const auto& make) {
        recorder::record made;
        search_state state{unit_problem(2, 4)};
        state.offer(one_at_a_time(state.problem()), "start");
        run_log log;
        // No slice is that short, so none grows more than it must.
        run_concurrent_portfolio(state, {make(&made)}, {.threads = 1, .slice_seconds = 1e-12}, log);
        REQUIRE(made.calls.size() >= 2);
        return std::pair{made.calls[0].effort, made.calls[1].effort};
    };
    const auto anew = efforts([](auto* to) { return recorder{to}; });
    CHECK(anew.second == 4 * anew.first);
    const auto resumed = efforts([](auto* to) { return resuming_recorder{{to}}; });
    CHECK(resumed.second == 2 * resumed.first);
}

TEST_CASE("a strategy that finds nothing is called less and less often, unless it resumes") {
    recorder::record resumed;
    recorder::record anew;
    std::stop_source source;
    search_state state{unit_problem(2, 4), {.stop = source.get_token()}};
    state.offer(one_at_a_time(state.problem()), "start");
    run_log log;
    // One slice without results is already too long, and no slice has more effort than the previous one.
    constexpr time_share_parameters with{
        .staleness_seconds = 1e-24, .least_growth = 1.0, .restarting_growth = 1.0, .most_growth = 1.0};
    run_concurrent_portfolio(state, {resuming_recorder{{&resumed, 1000, source}}, recorder{&anew}},
                             {.threads = 1, .with = with}, log);
    CHECK(resumed.calls.size() == 1000);
    CHECK(anew.calls.size() == 1);
}

TEST_CASE("a cooperative strategy runs several times at once, with seeds of their own") {
    if (parallel::available_cores() < 2) return;
    recorder::record made;
    std::stop_source source;
    search_state state{unit_problem(2, 4), {.stop = source.get_token()}};
    run_log log;
    run(state, {cooperative{{&made, 0, source}}}, 2, log);
    REQUIRE(made.calls.size() == 2);
    CHECK(made.calls[0].seed != made.calls[1].seed);
}

TEST_CASE("an exception of a strategy is rethrown after the others have been stopped") {
    const auto p = unit_problem(2, 4);
    for (const std::size_t threads : {1U, 2U, 4U}) {
        CAPTURE(threads);
        search_state state{p};
        run_log log;
        CHECK_THROWS_WITH_AS(run(state, {fake::thrower{}, fake::shuffler{}}, threads, log), "thrown",
                             std::runtime_error);
        CHECK_FALSE(state.done());
    }
}

TEST_CASE("a proof, a stop request and a deadline end the search, and stop every strategy") {
    const auto p = unit_problem(3, 6);
    for (const std::size_t threads : {1U, 2U, 4U}) {
        CAPTURE(threads);
        run_log log;
        std::stop_source source;
        search_state asked{p, {.stop = source.get_token()}};
        run(asked, {fake::stopper{source}, fake::endless{}}, threads, log);
        CHECK(asked.done());

        search_state late{p, {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{1}}};
        run(late, {fake::endless{}}, threads, log);
        CHECK(late.done());

        search_state gap{p, {.gap = 0.99}};
        run(gap, {fake::prover{duration{1.0}}, fake::endless{}}, threads, log);
        CHECK(gap.done());
        CHECK_FALSE(gap.proven());
    }
}

TEST_CASE("a strategy that looks at stop requests alone is stopped, too, once the gap is reached") {
    if (parallel::available_cores() < 2) return;
    search_state state{unit_problem(3, 6), {.gap = 0.99}};
    std::atomic<bool> begun{false};
    std::atomic<bool> stopped{false};
    run_log log;
    run(state, {waits_for_stop{&begun, &stopped}, late_prover{{duration{1.0}}, &begun}}, 2, log);
    CHECK(state.done());
    CHECK(stopped);
}
