#include "optpipe/schedule/builders/zero_bubble_auto.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::largest_peak;
using oracle::linear_problem;
using oracle::profile;
using oracle::profile_of;
using oracle::rows_of;

static_assert(zero_bubble_auto.name == "zb-auto");
constexpr auto tiny = make_problem(graph<2, 3>{}, unit_memory{}, 2_gb);
constexpr auto tiny_schedule = *build_schedule(tiny, zero_bubble_auto);
static_assert(is_valid(tiny, tiny_schedule));
static_assert(measure(tiny, tiny_schedule).makespan == 10_ms);
static_assert(measure(tiny, tiny_schedule).peak_memory[rank{0}] == 2_gb);
static_assert(peak_stash(*zero_bubble_auto(tiny)) <= 3);
constexpr auto too_small = make_problem(graph<2, 3>{}, unit_memory{}, 0.5_gb);
static_assert(zero_bubble_auto(too_small).why().reason == refusal_reason::over_memory);
static_assert(zero_bubble_auto(too_small).why().needed == 1_gb);

measures measured(problem p, objective_kind objective, double limit) {
    p.objective = objective;
    for (auto& each : p.memory_limit)
        each = memory_size{limit};
    const auto timed = build_schedule(p, zero_bubble_auto);
    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
    return measure(p, *timed);
}

std::string text_of(const std::vector<std::string>& row) {
    std::string all;
    for (const auto& field : row)
        all += field + " ";
    return all;
}

void check_valid(const problem& p, const schedule& s) {
    const auto found = validate(p, s);
    CHECK_MESSAGE(found.empty(), found.front().text());
    CHECK(oracle::judge(p, s).text() == "");
}

} // namespace

TEST_CASE("what it isn't made for") {
    const auto v = to_problem(make_problem(graph<2, 3, placement::v>{}, unit_memory{}));
    REQUIRE_FALSE(zero_bubble_auto(v).has_value());
    CHECK(zero_bubble_auto(v).why().reason == refusal_reason::does_not_apply);
    CHECK(zero_bubble_auto(v).why().sentence == "this Zero Bubble schedule is for one stage per rank");
    auto whole = to_problem(make_problem(graph<2, 3>{}, unit_memory{}));
    whole.split_backward = false;
    CHECK(zero_bubble_auto(whole).why().sentence == "Zero Bubble is for backwards that may be split into I and W");
}

TEST_CASE("less than one stash is refused with what the rank needs") {
    auto p = to_problem(make_problem(graph<3, 4>{}, unit_memory{}, 2_gb));
    p.memory_limit[rank{1}] = 0.9_gb;
    p.change_stage(stage{2}, [&](auto& c) { c.activation = 4_gb; });
    const auto refused = zero_bubble_auto(p);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::over_memory);
    CHECK(refused.why().rank == rank{2});
    CHECK(refused.why().needed == 4_gb);
    CHECK(refused.why().limit == 2_gb);
}

TEST_CASE("no worse than as measured with the authors' scheduler") {
    std::size_t compared = 0;
    std::string better;
    std::string larger;
    for (const auto& row : rows_of("golden/zero_bubble_automatic.csv")) {
        INFO(text_of(row));
        const auto ranks = std::stoul(row[2]);
        const auto p = linear_problem(ranks, std::stoul(row[3]), profile_of(row[4]), 1.0, std::stod(row[1]));
        const double limit = std::stod(row[0]) * static_cast<double>(ranks);
        const double peak = std::stod(row[7]);
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            const bool span = objective == objective_kind::span;
            const double theirs = std::stod(row[span ? 6 : 5]);
            auto m = measured(p, objective, limit);
            CHECK(m.objective.value() <= theirs * (1.0 + 1e-6));
            if (m.objective.value() < theirs * (1.0 - 1e-6))
                better +=
                    "\n  " + text_of(row) + (span ? "span: " : "makespan: ") + std::to_string(m.objective.value());
            if (largest_peak(m) > peak * (1.0 + 1e-9)) {
                larger += "\n  " + text_of(row) + (span ? "span, " : "makespan, ") + std::to_string(largest_peak(m));
                // Its memory was allowed and bought time. With no more memory than theirs it isn't worse either.
                CHECK(largest_peak(m) <= limit * (1.0 + 1e-9));
                CHECK(m.objective.value() < theirs * (1.0 - 1e-6));
                m = measured(p, objective, peak);
                CHECK(m.objective.value() <= theirs * (1.0 + 1e-6));
                CHECK(largest_peak(m) <= peak * (1.0 + 1e-9));
            }
            ++compared;
        }
    }
    CHECK(compared == 192);
    MESSAGE("better than theirs:" << better);
    MESSAGE("better than theirs with more memory, within the same limit:" << larger);
}

TEST_CASE("the bubble rates of the paper's tables") {
    constexpr std::uint64_t most = 4;
    std::size_t compared = 0;
    for (const auto& row : oracle::some_rows_of("golden/zero_bubble_tables.csv", most)) {
        INFO(text_of(row));
        const auto number = [&](std::size_t i) { return std::stod(row[i]); };
        const auto p = linear_problem(std::stoul(row[1]), std::stoul(row[2]),
                                      {number(4), number(5), number(6), number(7)}, number(8), number(9));
        const double one = number(1) * number(8);
        CHECK(measured(p, objective_kind::span, one).bubble_rate <= number(14) + 1e-4);
        CHECK(measured(p, objective_kind::span, 2 * one).bubble_rate <= number(15) + 1e-4);
        ++compared;
    }
    CHECK(compared * oracle::stride(most) >= 21);
}

TEST_CASE("bubble rate against memory, as the authors published it") {
    const auto stride = oracle::stride(8);
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/zero_bubble_memory.csv")) {
        INFO(text_of(row));
        const auto number = [&](std::size_t i) { return std::stod(row[i]); };
        const auto p = linear_problem(std::stoul(row[1]), std::stoul(row[2]),
                                      {number(3), number(4), number(5), number(6)}, number(7), number(8));
        for (std::size_t k = 0; k < 17; k += stride) {
            const double limit = (1.0 + static_cast<double>(k) / 8.0) * number(1) * number(7);
            const auto m = measured(p, objective_kind::span, limit);
            CHECK(m.bubble_rate <= number(9 + k) + 1e-4);
            CHECK(largest_peak(m) <= limit * (1.0 + 1e-6));
            ++compared;
        }
    }
    CHECK(compared * stride >= 153);
}

TEST_CASE("every limit that holds one stash is kept, whatever the costs") {
    constexpr std::uint64_t seed = 93;
    std::uint64_t applied = 0;
    std::uint64_t tight = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(800); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 16, .stages = 16, .microbatches = 64, .cells = 1024}).problem;
        const auto built = zero_bubble_auto(p);
        CHECK(built.has_value() == (one_stage_per_rank(p.graph) && p.split_backward));
        if (!built) continue;
        ++applied;
        tight += std::any_of(p.memory_limit.begin(), p.memory_limit.end(), [](auto l) { return !l.is_unlimited(); });
        const auto timed = time_order(p, *built);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        check_valid(p, *timed);
        CHECK(zero_bubble_auto(p)->operations == built->operations);
    }
    CHECK(applied > oracle::random_cases(150));
    CHECK(tight > oracle::random_cases(80));
}

TEST_CASE("with one stash on each rank, every number of ranks and microbatches") {
    for (std::size_t ranks = 2; ranks <= 16; ++ranks)
        for (const auto count : std::vector<std::size_t>{1, 2, 3, 7, 16, 64})
            for (const double weight_stash : {0.0, 0.5, 1.0, 1.75}) {
                CAPTURE(ranks);
                CAPTURE(count);
                CAPTURE(weight_stash);
                const auto m = measured(linear_problem(ranks, count, {2, 3, 1, 0.5}, 1.0, weight_stash),
                                        objective_kind::makespan, 1.0);
                CHECK(largest_peak(m) <= 1.0);
            }
}

TEST_CASE("with equal stages, never beaten by 1F1B in the memory that 1F1B takes") {
    constexpr std::uint64_t seed = 94;
    for (std::uint64_t i = 0; i < oracle::random_cases(400); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto step = [&] { return static_cast<double>(random.between(1, 8)); };
        const profile c{step(), step(), step(), 0.125 * step()};
        auto p = linear_problem(random.between(2, 16), random.between(1, 64), c);
        p.objective = random.chance(50) ? objective_kind::span : objective_kind::makespan;
        for (auto& limit : p.memory_limit)
            limit = memory_size{static_cast<double>(std::min(p.graph.ranks(), p.graph.microbatches()))};
        const auto other = build_schedule(p, one_forward_one_backward);
        REQUIRE(other.has_value());
        const auto ours = build_schedule(p, zero_bubble_auto);
        REQUIRE(ours.has_value());
        CHECK(objective_of(p, *ours) <= (1.0 + 1e-9) * objective_of(p, *other));
    }
}
