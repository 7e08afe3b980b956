#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

using namespace optpipe::milp;

namespace {

oracle::random_model_shape large{.integers = 14, .reals = 4, .rows = 12};

} // namespace

TEST_CASE("deterministic: the same search whatever the number of threads") {
    constexpr std::uint64_t models = 40;
    const auto compare = [](const model& m, std::uint64_t seed) {
        std::optional<result> first;
        for (const std::size_t threads : {1U, 2U, 3U}) {
            CAPTURE(threads);
            solve_options options;
            options.deterministic = true;
            options.threads = threads;
            options.seed = seed;
            options.node_limit = 150;
            const auto r = solve(m, options);
            if (!first) first = r;
            CHECK(r.why == first->why);
            CHECK(r.objective == first->objective);
            CHECK(r.bound == first->bound);
            CHECK(r.incumbent == first->incumbent);
            CHECK(r.stats.nodes == first->stats.nodes);
            CHECK(r.stats.conflicts == first->stats.conflicts);
        }
    };
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        compare(oracle::random_model(seed, large), seed);
    }
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("mip/lseu"))
        compare(known.read(), 3);
}

TEST_CASE("one thread: the same seed, the same search") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("mip/lseu")) {
        solve_options options;
        options.node_limit = 100;
        const auto m = known.read();
        const auto first = solve(m, options), second = solve(m, options);
        CHECK(first.stats.nodes == second.stats.nodes);
        CHECK(first.stats.lp_iterations == second.stats.lp_iterations);
        CHECK(first.incumbent == second.incumbent);
    }
}

TEST_CASE("threads agree on the optimum") {
    constexpr std::uint64_t models = 60;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const auto m = oracle::random_model(seed, large);
        solve_options options;
        const auto one = solve(m, options);
        options.threads = 3;
        const auto three = solve(m, options);
        CHECK(one.why == three.why);
        if (std::holds_alternative<optimal>(one.why)) CHECK(one.objective == doctest::Approx(three.objective));
    }
}

TEST_CASE("what a callback throws reaches the caller, from whatever thread") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("mip/bell5"))
        for (const std::size_t threads : {1U, 2U}) {
            solve_options options;
            options.threads = threads;
            std::size_t calls = 0;
            options.on_progress = [&](const progress& p, solution_sink&) {
                if (p.nodes > 100 && ++calls == 1) throw std::runtime_error{"enough"};
            };
            options.progress_interval = std::chrono::duration<double>{0.0};
            CHECK_THROWS_WITH_AS(static_cast<void>(solve(known.read(), options)), "enough", std::runtime_error);
        }
}

TEST_CASE("more threads asked for than the arena has") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("mip/dcmulti")) {
        const auto m = known.read();
        oneapi::tbb::task_arena arena{1};
        solve_options options;
        options.threads = 2;
        const auto r = solve(arena, m, options);
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(known.agrees(r.objective));
    }
}

TEST_CASE("in the caller's arena, with the incumbent read from another thread meanwhile") {
    if (!oracle::can_read_known_models()) return;
    for (const auto& known : oracle::known_models("mip/bell5")) {
        const auto m = known.read();
        oneapi::tbb::task_arena arena{2};
        shared_incumbent shared;
        solve_options options;
        options.threads = 2;
        options.shared = &shared;
        std::atomic<std::size_t> reads{0}, wrong{0};
        std::jthread reader{[&](const std::stop_token& stop) {
            while (!stop.stop_requested()) {
                if (const auto s = shared.read()) {
                    ++reads;
                    if (!check(m, s->values).empty() || s->objective != objective_value(m, s->values)) ++wrong;
                }
                std::this_thread::yield();
            }
        }};
        const auto r = solve(arena, m, options);
        reader.request_stop();
        reader.join();
        CHECK(std::holds_alternative<optimal>(r.why));
        CHECK(known.agrees(r.objective));
        CHECK(reads > 0);
        CHECK(wrong == 0);
        REQUIRE(shared.read().has_value());
        CHECK(shared.read()->values == r.incumbent);
    }
}
