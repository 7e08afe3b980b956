#include "optpipe/schedule/builders/zero_bubble_v.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/v_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::largest_peak;
using oracle::profile_of;
using oracle::rows_of;

static_assert(zero_bubble_v.name == "zb-v");
constexpr auto tiny = make_problem(graph<2, 4, placement::v>{}, unit_memory{}, 4_gb);
constexpr auto tiny_schedule = *build_schedule(tiny, zero_bubble_v);
static_assert(is_valid(tiny, tiny_schedule));

measures measured(problem p, objective_kind objective, double limit) {
    p.objective = objective;
    for (auto& each : p.memory_limit)
        each = memory_size{limit};
    const auto timed = build_schedule(p, zero_bubble_v);
    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
    return measure(p, *timed);
}

} // namespace

TEST_CASE("what it isn't made for") {
    const auto refused = zero_bubble_v(to_problem(make_problem(graph<2, 3>{}, unit_memory{})));
    CHECK(refused.why().reason == refusal_reason::does_not_apply);
}

TEST_CASE("equal passes, 2R stashes: no bubble") {
    for (std::size_t ranks = 1; ranks <= 12; ++ranks)
        for (const std::size_t count : {2 * ranks, 3 * ranks + 1}) {
            CAPTURE(ranks);
            CAPTURE(count);
            const auto p = oracle::unit_v_problem(ranks, count, static_cast<double>(2 * ranks));
            const auto m = measure(p, *build_schedule(p, zero_bubble_v));
            CHECK(m.objective.value() == static_cast<double>(6 * count));
            CHECK(largest_peak(m) <= static_cast<double>(2 * ranks));
        }
}

TEST_CASE("no worse than as measured with the authors' scheduler, in no more memory") {
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/v_schedules.csv")) {
        if (row[0] != "zb-v") continue;
        CAPTURE(row[3] + "x" + row[4] + " " + row[5] + " " + row[2]);
        auto c = profile_of(row[5]);
        const auto p = oracle::v_problem(std::stoul(row[3]), std::stoul(row[4]),
                                         {c.forward / 2, c.backward_input / 2, c.backward_weight / 2, c.p2p}, 0.5,
                                         0.5 * std::stod(row[2]));
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            const auto m = measured(p, objective, std::stod(row[1]));
            CHECK(m.objective.value() <= std::stod(row[objective == objective_kind::span ? 7 : 6]) * (1.0 + 1e-6));
            CHECK(largest_peak(m) <= std::stod(row[8]) + 1e-9);
            ++compared;
        }
    }
    CHECK(compared == 96);
}

TEST_CASE("a limit that is never reached is none") {
    for (const double weight : {1.0, 0.5}) {
        auto p = oracle::v_problem(4, 16, {1.0, 1.2, weight, 0.1}, 1.0, 0.5);
        for (auto& each : p.memory_limit)
            each = memory_size::unlimited();
        const auto free = zero_bubble_v(p);
        for (auto& each : p.memory_limit)
            each = memory_size{1000.0};
        const auto limited = zero_bubble_v(p);
        REQUIRE(free);
        REQUIRE(limited);
        CHECK(limited->operations == free->operations);
        CHECK(largest_peak(measure(p, *time_order(p, *limited))) <= 8.0);
    }
}

TEST_CASE("bubble rate against memory, as the authors published it") {
    const auto stride = oracle::stride(8);
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/zero_bubble_v_memory.csv")) {
        const auto number = [&](std::size_t i) { return std::stod(row[i]); };
        const auto p = oracle::v_problem(std::stoul(row[1]), std::stoul(row[2]),
                                         {number(3), number(4), number(5), number(6)}, number(7), number(8));
        for (std::size_t k = 0; k < 17; k += stride) {
            CAPTURE(row[0] + " " + row[1] + "x" + row[2]);
            CAPTURE(k);
            const double limit = (2.0 + static_cast<double>(k) / 4.0) * number(1) * number(7);
            const auto m = measured(p, objective_kind::span, limit);
            CHECK(m.bubble_rate <= number(9 + k) + 1e-4);
            CHECK(largest_peak(m) <= limit * (1.0 + 1e-6));
            ++compared;
        }
    }
    CHECK(compared * stride >= 153);
}

TEST_CASE("any costs, limits, ranks and microbatches") {
    constexpr std::uint64_t seed = 64;
    std::uint64_t fitted = 0;
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(150); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::random_v_problem(random);
        const auto built = zero_bubble_v(p);
        REQUIRE(built.has_value());
        const auto timed = time_order(p, *built);
        if (!timed) {
            CHECK(timed.why().reason == refusal_reason::over_memory);
            CHECK(timed.why().needed > timed.why().limit);
            ++refused;
            continue;
        }
        ++fitted;
        const auto found = validate(p, *timed);
        CHECK_MESSAGE(found.empty(), found.front().text());
        if (p.graph.cells() <= 256) CHECK(oracle::judge(p, *timed).text() == "");
    }
    CHECK(fitted > oracle::random_cases(40));
    CHECK(refused > oracle::random_cases(10));
}

TEST_CASE("with equal stages, never beaten by 1F1B in the memory that 1F1B takes") {
    constexpr std::uint64_t seed = 66;
    for (std::uint64_t i = 0; i < oracle::random_cases(300); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + i};
        const auto ranks = random.between(2, 12);
        const auto count = random.between(ranks, 4 * ranks);
        const auto step = [&] { return static_cast<double>(random.between(1, 8)); };
        const oracle::profile half{step(), step(), step(), random.chance(50) ? 0.0 : 0.125 * step()};
        const oracle::profile whole{2 * half.forward, 2 * half.backward_input, 2 * half.backward_weight, half.p2p};
        auto linear = oracle::linear_problem(ranks, count, whole, 1.0, 1.0);
        linear.objective = objective_kind::span;
        const auto one = objective_of(linear, *build_schedule(linear, one_forward_one_backward));
        const auto p = oracle::v_problem(ranks, count, half, 0.5, 0.5);
        CHECK(measured(p, objective_kind::span, static_cast<double>(ranks)).objective <= one * (1.0 + 1e-9));
    }
}
