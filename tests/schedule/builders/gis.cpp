#include "optpipe/schedule/builders/gis.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gis_half.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/loop_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::loop_problem;
using oracle::profile_of;
using oracle::rows_of;

static_assert(gis.name == "gis" && gis_half.name == "gis-h");
constexpr auto unit = make_problem(graph<4, 8, placement::loop<2>>{}, unit_memory{});
constexpr auto unit_schedule = *build_schedule(unit, gis);
static_assert(is_valid(unit, unit_schedule));
static_assert(measure(unit, unit_schedule).makespan == 8 * 6_ms + 3 * 2_ms);
static_assert(measure(unit, unit_schedule).peak_memory[rank{0}] == 8_gb);
static_assert(peak_stash(*gis_half(unit)) == 6);
static_assert(peak_stash(*gis(make_problem(graph<4, 8>{}, unit_memory{}))) == 4);

} // namespace

TEST_CASE("each input gradient goes on before its weight gradient") {
    const auto p = to_problem(make_problem(graph<2, 2, placement::loop<2>>{}, unit_memory{}));
    const auto built = gis(p);
    REQUIRE(built.has_value());
    CHECK(oracle::spell(*simulate(p, *built)) ==
          "0F0@0 0F1@1 1F0@1 1F1@2 2F0@2 2F1@3 3F0@3 3I0@4 2I0@5 3W0@5 2W0@6 3F1@6 3I1@7 2I1@8 3W1@8 1I0@9 2W1@9 "
          "0I0@10 1W0@10 0W0@11 1I1@11 0I1@12 1W1@12 0W1@13");
}

TEST_CASE("only loop placement, and no group larger than the number of ranks") {
    const auto v_placed = to_problem(make_problem(graph<2, 3, placement::v>{}, unit_memory{}));
    for (const auto& refused : {gis(v_placed), gis_half(v_placed)}) {
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.why().reason == refusal_reason::does_not_apply);
        CHECK(refused.why().sentence ==
              "generalized interleaved is for loop placement: stage s on rank s mod R, as many on each rank");
    }
    const auto refused = gis_builder{4}(loop_problem(3, 5, 2, {1, 1, 1, 0}));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::does_not_apply);
    CHECK(refused.why().sentence ==
          "generalized interleaved takes groups of at most as many microbatches as there are ranks, 3, not 4");
}

TEST_CASE("as measured with the authors' scheduler, in time and memory") {
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/gis.csv")) {
        for (std::size_t i = 0; i < 6; ++i)
            CAPTURE(row[i]);
        for (const auto objective : {objective_kind::makespan, objective_kind::span})
            for (const double weight_share : {1.0, 0.5}) {
                auto p = loop_problem(std::stoul(row[3]), std::stoul(row[4]), std::stoul(row[0]), profile_of(row[5]),
                                      weight_share);
                p.split_backward = row[2] == "split";
                p.objective = objective;
                const auto m = measure(p, *build_schedule(p, gis_builder{std::stoul(row[1])}));
                CHECK(m.objective.value() <=
                      std::stod(row[objective == objective_kind::makespan ? 6 : 7]) * (1.0 + 1e-6));
                CHECK(oracle::largest_peak(m) <= std::stod(row[weight_share == 1.0 ? 8 : 9]) * (1.0 + 1e-9));
                ++compared;
            }
    }
    CHECK(compared == 672);
}

TEST_CASE("as measured with the authors' scheduler, at the times of the paper's table") {
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/gis_units.csv")) {
        for (std::size_t i = 0; i < 7; ++i)
            CAPTURE(row[i]);
        const auto chunks = std::stoul(row[2]);
        const auto v = static_cast<double>(chunks);
        auto p = loop_problem(std::stoul(row[1]), std::stoul(row[3]), chunks,
                              {v * std::stod(row[4]), v * std::stod(row[5]), v * std::stod(row[6]), 0}, 1.0, v);
        p.objective = objective_kind::span;
        const auto built = row[0] == "gis-h" ? build_schedule(p, gis_half)
                           : row[0] == "gis" ? build_schedule(p, gis)
                                             : build_schedule(p, gis_builder{1});
        const auto m = measure(p, *built);
        if (!row[7].empty()) CHECK(m.span.value() <= std::stod(row[7]) * (1.0 + 1e-9));
        CHECK(m.bubble_rate <= std::stod(row[8]) + 1e-4);
        CHECK(oracle::largest_peak(m) <= std::stod(row[9]) * (1.0 + 1e-9));
        ++compared;
    }
    CHECK(compared == 48);
}

TEST_CASE("memory as promised for every group, and never slower than its idle time") {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks)
        for (std::size_t chunks = 1; chunks <= 4; ++chunks)
            for (const std::size_t count : {1UL, 2UL, ranks, 2 * ranks + 1, 4 * ranks})
                for (std::size_t group = (ranks + 1) / 2; group <= ranks; ++group) {
                    CAPTURE(ranks);
                    CAPTURE(chunks);
                    CAPTURE(count);
                    CAPTURE(group);
                    const auto v = static_cast<double>(chunks);
                    const auto p = loop_problem(ranks, count, chunks, {v, v, v, 0});
                    const auto built = *gis_builder{group}(p);
                    const auto timed = simulate(p, built);
                    REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
                    REQUIRE(peak_stash(built) <= std::min(group * (chunks - 1) + ranks, chunks * count));
                    if (count % group != 0) continue;
                    const auto passes = 3 * chunks * count + 2 * (ranks - 1) + (ranks - group) * (chunks - 1);
                    REQUIRE(objective_of(p, *timed).value() <= static_cast<double>(passes) * (1.0 + 1e-9));
                }
}

TEST_CASE("the largest group that fits the memory") {
    auto p = loop_problem(8, 32, 4, {4, 4, 4, 0}, 1.0, 4.0);
    for (std::size_t group = 4; group <= 8; ++group)
        for (const double more : {0.0, 2.0}) {
            for (auto& limit : p.memory_limit)
                limit = memory_size{static_cast<double>(3 * group + 8) + more};
            CHECK(gis(p)->operations == gis_builder{group}(p)->operations);
            CHECK(build_schedule(p, gis).has_value());
        }
    for (auto& limit : p.memory_limit)
        limit = 12_gb;
    const auto timed = build_schedule(p, gis);
    REQUIRE_FALSE(timed.has_value());
    CHECK(timed.why().reason == refusal_reason::over_memory);
    CHECK(timed.why().needed <= 23_gb);
}

TEST_CASE("with one stage per rank the group makes no difference, so none is looked for") {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
        for (const std::size_t microbatches : {1U, 3U, 8U, 20U}) {
            CAPTURE(ranks);
            CAPTURE(microbatches);
            auto p = loop_problem(ranks, microbatches, 1, {4, 5, 3, 1});
            for (auto& limit : p.memory_limit)
                limit = memory_size{0.5}; // less than any group needs
            const auto built = gis(p);
            REQUIRE(built);
            for (std::size_t group = 1; group <= ranks; ++group)
                CHECK(gis_builder{group}(p)->operations == built->operations);
        }
    }
}

TEST_CASE("what fits with few microbatches isn't judged by endless repetition") {
    auto p = loop_problem(8, 3, 2, {2, 2, 2, 0}, 1.0, 2.0);
    for (auto& limit : p.memory_limit)
        limit = 6_gb;
    CHECK(gis(p)->operations == gis_builder{8}(p)->operations);
    CHECK(build_schedule(p, gis).has_value());
}

TEST_CASE("a half group is raised where a pass takes longer than its work") {
    CHECK(detail::half_group(loop_problem(8, 8, 2, {1, 1, 1, 0})) == 4);
    CHECK(detail::half_group(loop_problem(7, 8, 2, {1, 1, 1, 0})) == 4);
    CHECK(detail::half_group(loop_problem(8, 8, 2, {3, 1, 1, 0})) == 5);
    CHECK(detail::half_group(loop_problem(8, 8, 2, {1, 8, 1, 0})) == 7);
    CHECK(detail::half_group(loop_problem(8, 8, 2, {1, 8, 1, 9})) == 8);
    CHECK(detail::half_group(loop_problem(1, 8, 2, {1, 8, 1, 9})) == 1);
}

TEST_CASE("valid for whatever costs and communication") {
    constexpr std::uint64_t seed = 93;
    std::uint64_t applied = 0;
    std::uint64_t with_chunks = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(250); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 16, .stages = 32, .microbatches = 64, .cells = 1024}).problem;
        const auto limits = p.memory_limit;
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        if (!is_loop_placed(p.graph)) {
            CHECK_FALSE(gis(p).has_value());
            continue;
        }
        ++applied;
        with_chunks += p.graph.stages() > p.graph.ranks() ? 1 : 0;
        for (const std::size_t group : {0UL, 1UL, random.between(1, p.graph.ranks()), detail::half_group(p)}) {
            CAPTURE(group);
            const auto built = gis_builder{group}(p);
            REQUIRE_MESSAGE(built.has_value(), describe(built.why()));
            const auto timed = time_order(p, *built);
            REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
            CHECK(validate(p, *timed).empty());
            CHECK(oracle::judge(p, *timed).text() == "");
        }
        p.memory_limit = limits;
        const auto built = build_schedule(p, gis);
        if (built)
            CHECK(validate(p, *built).empty());
        else
            CHECK(built.why().reason == refusal_reason::over_memory);
    }
    CHECK(applied > oracle::random_cases(80));
    CHECK(with_chunks > oracle::random_cases(25));
}
