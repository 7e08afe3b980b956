#include "optpipe/planner/race.hpp"

#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "planner/fake_parts.hpp"

#include <doctest/doctest.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

void race(search_board& board, const std::vector<any_search_part>& parts, std::size_t threads, run_log& log) {
    board.offer(one_at_a_time(board.to_solve()), "start");
    const auto cores = static_cast<std::size_t>(oneapi::tbb::info::default_concurrency());
    oneapi::tbb::task_arena arena{static_cast<int>(std::min(threads, cores))};
    arena.execute([&] { race_parts(board, parts, {.threads = threads}, log); });
}

/// Finds nothing, with as much or as little effort as it likes, and remembers what it was given.
struct recorder {
    static constexpr std::string_view name = "recorder";
    struct record {
        std::mutex mutex{};
        std::vector<part_options> calls{};
        std::size_t at_work = 0;
        std::size_t most_at_work = 0;
    };
    record* to = nullptr;
    std::size_t stop_after = 0;
    std::stop_source source{};

    void operator()(search_board&, const part_options& options) const {
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
struct drawing_recorder : recorder {
    static constexpr bool draws = true;
};

struct steady_endless : fake::endless {
    static bool steady(const problem&) { return true; }
};

/// Hears of nothing until half of the time that was left is over.
struct deaf {
    static constexpr std::string_view name = "deaf";
    std::chrono::steady_clock::time_point deadline{};
    std::atomic<std::size_t>* calls = nullptr;
    void operator()(search_board&, const part_options&) const {
        ++*calls;
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < deadline - std::chrono::steady_clock::now()) {
        }
    }
};

} // namespace

TEST_CASE("a part isn't begun when its shortest turn took longer than what is left") {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{400};
    search_board board{unit_problem(3, 4), {.deadline = deadline}};
    std::atomic<std::size_t> calls = 0;
    run_log log;
    race(board, {deaf{deadline, &calls}}, 1, log);
    CHECK(calls <= 1);
    CHECK(board.done());
}

TEST_CASE("finds of all parts end up on the board, under their names") {
    const auto p = unit_problem(3, 6);
    for (const std::size_t threads : {1, 2, 4}) {
        search_board board{p};
        run_log log;
        race(board, {fake::shuffler{}, fake::oracle{*zero_bubble_h1(p)}}, threads, log);
        CHECK(board.proven());
        CHECK(board.history().back().part == "oracle");
        const auto parts = log.with(board.history());
        const auto oracle = std::find_if(parts.begin(), parts.end(), [](const auto& e) { return e.name == "oracle"; });
        REQUIRE(oracle != parts.end());
        CHECK(oracle->runs == 1);
        CHECK(oracle->bounds == 1);
        CHECK(oracle->bound == board.objective());
    }
}

TEST_CASE("a race between parts that have nothing left to try ends") {
    const auto p = unit_problem(2, 4);
    for (const std::size_t threads : {1, 2, 4}) {
        search_board board{p};
        run_log log;
        std::atomic<std::size_t> calls{0};
        std::atomic<std::size_t> unsuited{0};
        race(board, {fake::counter{&calls}, fake::counter{&unsuited, false}}, threads, log);
        CHECK(calls >= 2);
        CHECK(unsuited == 0);
        CHECK_FALSE(board.done());
    }
    search_board nothing{p};
    run_log log;
    race(nothing, {}, 2, log);
}

TEST_CASE("efforts grow; only parts that draw get seeds of their own, and run several times at once") {
    const auto p = unit_problem(2, 4);
    std::stop_source source;
    recorder::record drawn;
    search_board board{p, {.stop = source.get_token()}};
    run_log log;
    race(board, {drawing_recorder{{&drawn, 12, source}}}, 2, log);
    REQUIRE(drawn.calls.size() >= 12);
    for (std::size_t i = 1; i < drawn.calls.size(); ++i) {
        CHECK(drawn.calls[i].effort >= drawn.calls[i - 1].effort);
        CHECK(drawn.calls[i].seed != drawn.calls[i - 1].seed);
    }
    CHECK(drawn.calls.back().effort > 16 * drawn.calls.front().effort);

    recorder::record plain;
    search_board other{p};
    race(other, {recorder{&plain}}, 4, log);
    CHECK(plain.most_at_work == 1);
    for (const auto& call : plain.calls)
        CHECK(call.seed == plain.calls.front().seed);
}

TEST_CASE("steady parts leave a thread to the others") {
    // Whether or not the others have begun, the oracle has its turn: were all threads given away, this would not end.
    const auto p = unit_problem(3, 6);
    if (oneapi::tbb::info::default_concurrency() < 2) return;
    for (int again = 0; again < 2; ++again) {
        search_board board{p};
        run_log log;
        race(board, {steady_endless{}, steady_endless{}, fake::oracle{*zero_bubble_h1(p)}}, 2, log);
        CHECK(board.proven());
    }
}

TEST_CASE("what a part throws arrives after the others have been stopped") {
    const auto p = unit_problem(2, 4);
    for (const std::size_t threads : {1, 2, 4}) {
        CAPTURE(threads);
        search_board board{p};
        run_log log;
        CHECK_THROWS_WITH_AS(race(board, {fake::thrower{}, fake::shuffler{}}, threads, log), "thrown",
                             std::runtime_error);
        CHECK_FALSE(board.done());
    }
}

TEST_CASE("a proof, a stop request and a deadline end the race, and every part is told") {
    const auto p = unit_problem(3, 6);
    for (const std::size_t threads : {1, 2, 4}) {
        CAPTURE(threads);
        run_log log;
        std::stop_source source;
        search_board asked{p, {.stop = source.get_token()}};
        race(asked, {fake::stopper{source}, fake::endless{}}, threads, log);
        CHECK(asked.done());

        search_board late{p, {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{1}}};
        race(late, {fake::endless{}}, threads, log);
        CHECK(late.done());

        search_board gap{p, {.gap = 0.99}};
        race(gap, {fake::prover{duration{1.0}}, fake::endless{}}, threads, log);
        CHECK(gap.done());
        CHECK_FALSE(gap.proven());
    }
}
