#include "optpipe/schedule/construct/within_memory.hpp"

#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches, double limit) {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
    for (auto& one : p.memory_limit)
        one = memory_size{limit};
    return p;
}
duration value_of(const problem& p, const order& given) {
    const auto timed = time_order(p, given);
    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
    return objective_of(p, *timed);
}

} // namespace

TEST_CASE("whatever the problem: valid where one microbatch at a time is, and something always runs") {
    constexpr std::uint64_t seed = 91;
    std::size_t tight = 0;
    std::size_t better = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(500); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 8, .stages = 16, .microbatches = 16, .cells = 96}).problem;
        if (!fits_one_at_a_time(p)) continue;
        const auto least = least_memory(p);
        const auto built = order_within_memory(p, least);
        const auto timed = time_order(p, built);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        CHECK(is_valid(p, *timed));
        CHECK(oracle::judge(p, *timed).text() == "");
        if (p.objective == objective_kind::span) continue;
        ++tight;
        const auto serial = value_of(p, one_at_a_time(p, least));
        const auto value = objective_of(p, *timed);
        CHECK(value <= (1.0 + 1e-9) * p.serial_time());
        better += value < 0.9 * serial ? 1 : 0;
    }
    CHECK(tight >= oracle::random_cases(200));
    CHECK(better > tight / 4);
}

TEST_CASE("uses the memory, with many ranks and little of it too") {
    for (const double limit : {2.0, 5.0, 12.0, 16.0, 100.0}) {
        CAPTURE(limit);
        const auto p = unit_problem(16, 200, limit);
        const auto built = order_within_memory(p, least_memory(p));
        const auto timed = time_order(p, built);
        REQUIRE(timed);
        // 1F1B takes 16; more memory gains nothing.
        const auto held = measure(p, *timed).peak_memory[rank{0}].value();
        CHECK(held <= std::min(limit, 16.0));
        CHECK(held >= std::min(limit, 10.0));
        // With m stashes on rank 0, m microbatches pass through 2 · 16 passes at best.
        const auto ideal = 200.0 * std::max(3.0, 32.0 / limit);
        CHECK(objective_of(p, *timed).value() < 2.0 * ideal + 100.0);
    }
}

TEST_CASE("ends where far more periods than microbatches pass between two stages") {
    auto p = unit_problem(4, 8, 2.0);
    p.p2p = hop_times<>{duration{1e30}};
    const auto timed = time_order(p, order_within_memory(p, least_memory(p)));
    REQUIRE(timed);
    CHECK(is_valid(p, *timed));
}

TEST_CASE("with the option of least work among those that fit") {
    constexpr std::size_t microbatches = 200;
    // The stash of one microbatch takes 1, of one recomputed ahead 0.1, and 1 while it is used.
    const storage_option full{"full", memory_size{0.1}, duration{1.0}, {}, {}, {}};
    for (const double limit : {0.5, 1.5, 4.0, 16.0}) {
        CAPTURE(limit);
        auto p = unit_problem(16, microbatches, limit);
        for (auto& options : p.storage)
            options.push_back(full);
        const auto timed = time_order(p, order_within_memory(p, least_memory(p)));
        CHECK(timed.has_value() == (limit >= 1.0));
        if (!timed) continue;
        CHECK(is_valid(p, *timed));
        CHECK(measure(p, *timed).recomputes == 0);
        for (auto& options : p.storage)
            options = {full};
        const auto recomputed = time_order(p, order_within_memory(p, least_memory(p)));
        REQUIRE(recomputed);
        CHECK(is_valid(p, *recomputed));
        // One after the other, each microbatch takes 4 · 16.
        CHECK(objective_of(p, *recomputed).value() < 0.5 * 64.0 * microbatches);
    }
}
