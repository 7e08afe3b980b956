#include "optpipe/schedule/builders/v_fixed.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/v_min.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/v_problem.hpp"
#include "schedule/construct/collisions.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::largest_peak;
using oracle::profile_of;
using oracle::some_rows_of;

static_assert(v_half.name == "v-half" && v_min.name == "v-min" && dual_pipe_v.name == "dualpipe-v");
static_assert(is_v_placed(graph<4, 8, placement::v>{}) && is_v_placed(graph<1, 1, placement::v>{}));
static_assert(!is_v_placed(graph<4, 8>{}) && !is_v_placed(graph<4, 8, placement::loop<2>>{}));

problem half_stages(std::size_t ranks, std::size_t microbatches, oracle::profile c, double weight_share) {
    c.forward /= 2;
    c.backward_input /= 2;
    c.backward_weight /= 2;
    return oracle::v_problem(ranks, microbatches, c, 0.5, 0.5 * weight_share);
}

template <class Builder> void check_laws(const Builder& build, std::uint64_t seed, std::uint64_t usual) {
    const auto problems = static_cast<int>(oracle::random_cases(usual));
    int fitted = 0;
    int refused = 0;
    for (int i = 0; i < problems; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        random_numbers random{seed * 1'000'003 + static_cast<std::uint64_t>(i)};
        const auto p = oracle::random_v_problem(random);
        const auto built = build(p);
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
        CHECK(build(p)->operations == built->operations);
    }
    CHECK(fitted > problems / 4);
    CHECK(refused > problems / 20);
}

} // namespace

TEST_CASE("a limit that is none on one rank takes nothing from the others") {
    auto p = oracle::v_problem(6, 5, {1.0, 1.0, 1.0, 0.0}, 1.0, 1.0);
    p.costs[stage{3}].weight_stash = memory_size{2};
    for (const double limit : {1e6, 1e9}) {
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = memory_size{r == rank{3} ? limit : 8.0};
        for (const auto& made : {build_schedule(p, v_half), build_schedule(p, v_min)}) {
            REQUIRE_MESSAGE(made, describe(made.why()));
            const auto peaks = measure(p, *made).peak_memory;
            for (const rank r : p.graph.all_ranks())
                CHECK((r == rank{3} || peaks[r] <= memory_size{8.0 + 1e-3}));
        }
    }
}

TEST_CASE_TEMPLATE("what they aren't made for", Builder, v_half_builder, v_min_builder, dual_pipe_v_builder) {
    const auto linear = to_problem(make_problem(graph<4, 3>{}, unit_memory{}));
    CHECK(Builder{}(linear).why().reason == refusal_reason::does_not_apply);
    CHECK(Builder{}(linear).why().sentence ==
          "this schedule is for v placement: stages 0 … R−1 on the ranks in order, and back");
    auto whole = to_problem(make_problem(graph<4, 3, placement::v>{}, unit_memory{}));
    whole.split_backward = false;
    CHECK(Builder{}(whole).why().sentence == "this schedule is for backwards that may be split into I and W");
}

TEST_CASE("blocks never collide, and hold what the paper says") {
    for (std::size_t ranks = 2; ranks <= 64; ++ranks) {
        CAPTURE(ranks);
        const auto p = oracle::unit_v_problem(ranks, 1, 1.0);
        auto half = v_half_block(p.graph);
        auto least = v_min_block(p.graph);
        CHECK(place_weight_gradients(p.graph, half));
        CHECK(place_weight_gradients(p.graph, least));
        CHECK(is_free_of_collisions(p.graph, half));
        CHECK(is_free_of_collisions(p.graph, least));
        // Counted in stashes of whole ranks, two stages each.
        CHECK(detail::stashes_of_repetition(p, half) == 2 * ((ranks + 2) / 2));
        CHECK(detail::stashes_of_repetition(p, least) == 2 * ((ranks + 4) / 3));
    }
}

TEST_CASE("no worse than as measured with the authors' scheduler, in no more memory") {
    constexpr std::uint64_t most = 3;
    std::size_t compared = 0;
    std::string better;
    for (const auto& row : some_rows_of("golden/v_schedules.csv", most)) {
        if (row[0] != "v-half" && row[0] != "v-min") continue;
        CAPTURE(row[0] + " " + row[3] + "x" + row[4] + " " + row[5]);
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            auto p = half_stages(std::stoul(row[3]), std::stoul(row[4]), profile_of(row[5]), std::stod(row[2]));
            p.objective = objective;
            const auto timed = row[0] == "v-half" ? build_schedule(p, v_half) : build_schedule(p, v_min);
            REQUIRE(timed.has_value());
            const auto m = measure(p, *timed);
            const double theirs = std::stod(row[objective == objective_kind::span ? 7 : 6]);
            CHECK(m.objective.value() <= theirs * (1.0 + 1e-6));
            CHECK(largest_peak(m) <= std::stod(row[8]) + 1e-9);
            if (m.objective.value() < theirs * (1.0 - 1e-6))
                better += "\n  " + row[0] + " " + row[3] + "x" + row[4] + " " + row[5];
            ++compared;
        }
    }
    CHECK(compared * oracle::stride(most) >= 96);
    MESSAGE("better than theirs:" << better);
}

TEST_CASE("the bubble rates on the profiles of ZB-V") {
    constexpr std::uint64_t most = 3;
    std::size_t compared = 0;
    for (const auto& row : some_rows_of("golden/v_profiles.csv", most)) {
        const auto number = [&](std::size_t i) { return std::stod(row[i]); };
        auto p = oracle::v_problem(std::stoul(row[1]), std::stoul(row[2]), {number(3), number(4), number(5), number(6)},
                                   1.0, 1.0);
        p.objective = objective_kind::span;
        CAPTURE(row[0] + " " + row[1] + "x" + row[2]);
        const auto half = measure(p, *build_schedule(p, v_half));
        CHECK(half.bubble_rate <= number(7) + 1e-4);
        CHECK(largest_peak(half) <= number(8));
        const auto least = measure(p, *build_schedule(p, v_min));
        CHECK(least.bubble_rate <= number(9) + 1e-4);
        CHECK(largest_peak(least) <= number(10));
        ++compared;
    }
    CHECK(compared * oracle::stride(most) >= 9);
}

TEST_CASE("any costs, limits, ranks and microbatches") {
    check_laws(v_half, 61, 120);
    check_laws(v_min, 62, 120);
    check_laws(dual_pipe_v, 63, 120);
}

TEST_CASE("DualPipeV: its shape and its memory") {
    for (std::size_t ranks = 1; ranks <= 16; ++ranks)
        for (const auto count : std::vector<std::size_t>{1, 2, 3, 7, 16, 33, 64}) {
            CAPTURE(ranks);
            CAPTURE(count);
            const auto p = oracle::v_problem(ranks, count, {1, 1, 1, 0}, 1.0, 1.0);
            const auto m = measure(p, *build_schedule(p, dual_pipe_v));
            CHECK(largest_peak(m) <= static_cast<double>(2 * ranks + 1));
            // Its own formula, without overlap of forward and backward: (R − 1) passes of one stage and one more.
            if (count >= 2 * ranks) CHECK(m.makespan.value() <= static_cast<double>(6 * count + 8 * ranks));
        }
}
