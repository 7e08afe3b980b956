#include "optpipe/schedule/builders/interleaved.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/golden.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using oracle::profile;
using oracle::profile_of;
using oracle::rows_of;

static_assert(interleaved.name == "interleaved");
static_assert(is_loop_placed(graph<4, 8>{}) && is_loop_placed(graph<4, 8, placement::loop<3>>{}));
static_assert(!is_loop_placed(graph<4, 8, placement::v>{}));
static_assert(peak_stash(interleaved(graph<4, 8, placement::loop<2>>{})) == 11);
static_assert(peak_stash(interleaved(graph<4, 3, placement::loop<2>>{})) == 6);
static_assert(peak_stash(interleaved(graph<4, 8>{})) == 4);
constexpr auto unit = make_problem(graph<4, 8, placement::loop<2>>{}, unit_memory{});
constexpr auto unit_schedule = *build_schedule(unit, interleaved);
static_assert(is_valid(unit, unit_schedule));
static_assert(measure(unit, unit_schedule).makespan == 8 * 6_ms + 3 * 3_ms);
static_assert(measure(unit, unit_schedule).peak_memory[rank{0}] == 11_gb);

problem interleaved_problem(std::size_t ranks, std::size_t microbatches, std::size_t chunks, const profile& c) {
    per_stage<rank> map(ranks * chunks);
    for (const stage s : map.indices())
        map[s] = rank{s.position() % ranks};
    const double share = 1.0 / static_cast<double>(chunks);
    const stage_costs each{duration{share * c.forward},
                           duration{share * c.backward_input},
                           duration{share * c.backward_weight},
                           memory_size{share},
                           memory_size{share},
                           {}};
    problem p{any_graph{ranks, microbatches, placement::map<>{map}}, per_stage<stage_costs>(map.size(), each)};
    p.p2p = hop_times<>{duration{c.p2p}};
    return p;
}

} // namespace

TEST_CASE("groups of microbatches pass stage after stage of a rank") {
    const auto p = to_problem(make_problem(graph<2, 2, placement::loop<2>>{}, unit_memory{}));
    const auto built = interleaved(p);
    REQUIRE(built.has_value());
    CHECK(oracle::spell(*simulate(p, *built)) == "0F0@0 0F1@1 1F0@1 1F1@2 2F0@2 2F1@3 3F0@3 3B0@4 2B0@6 3F1@6 3B1@7 "
                                                 "1B0@9 2B1@9 0B0@11 1B1@11 0B1@13");
}

TEST_CASE("one stage per rank is 1F1B") {
    for (std::size_t ranks = 1; ranks <= 5; ++ranks)
        for (std::size_t count = 1; count <= 9; ++count) {
            const graph<dynamic, dynamic> g{ranks, count};
            CHECK(interleaved(g).operations == one_forward_one_backward(g).operations);
        }
}

TEST_CASE("only loop placement") {
    const auto refused = interleaved(to_problem(make_problem(graph<2, 3, placement::v>{}, unit_memory{})));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == refusal_reason::does_not_apply);
    CHECK(refused.why().sentence ==
          "interleaved 1F1B is for loop placement: stage s on rank s mod R, as many on each rank");
    per_stage<rank> uneven(3);
    uneven[stage{1}] = rank{1};
    CHECK_FALSE(interleaved(make_problem(any_graph{2, 3, placement::map<>{uneven}}, unit_memory{})).has_value());
}

TEST_CASE("any number of ranks, chunks and microbatches: no cycle, memory as promised, no slower than 1F1B") {
    const auto stride = oracle::stride(8);
    for (std::size_t ranks = 2; ranks <= 16; ++ranks)
        for (std::size_t chunks = 1; chunks <= 4; ++chunks)
            for (std::size_t count = 1 + (ranks + chunks) % stride; count <= 64; count += stride) {
                CAPTURE(ranks);
                CAPTURE(chunks);
                CAPTURE(count);
                const auto p = interleaved_problem(ranks, count, chunks, {1, 1, 1, 0});
                const auto built = *interleaved(p);
                const auto timed = simulate(p, built);
                REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
                const auto most = chunks == 1 ? ranks : 2 * (ranks - 1) + (chunks - 1) * ranks + 1;
                REQUIRE(peak_stash(built) <= std::min(most, chunks * count));
                const double in_turn = 3.0 * static_cast<double>(count + ranks - 1);
                const auto makespan = objective_of(p, *timed).value();
                REQUIRE(makespan <= in_turn * (1.0 + 1e-9));
                if (count % ranks != 0) continue;
                const double bubble = 3.0 * static_cast<double>(ranks - 1) / static_cast<double>(chunks);
                REQUIRE(makespan == doctest::Approx(3.0 * static_cast<double>(count) + bubble));
            }
}

TEST_CASE("as measured with the authors' scheduler, in time and memory") {
    std::size_t compared = 0;
    for (const auto& row : rows_of("golden/fixed_patterns.csv")) {
        if (row[0] != "interleaved") continue;
        CAPTURE(row[1]);
        CAPTURE(row[2]);
        CAPTURE(row[3]);
        CAPTURE(row[4]);
        auto p = interleaved_problem(std::stoul(row[2]), std::stoul(row[3]), std::stoul(row[1]), profile_of(row[4]));
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            p.objective = objective;
            const auto m = measure(p, *build_schedule(p, interleaved));
            const double theirs = std::stod(row[objective == objective_kind::makespan ? 5 : 6]);
            CHECK(m.objective.value() <= theirs * (1.0 + 1e-6));
            for (const auto peak : m.peak_memory)
                CHECK(peak.value() <= std::stod(row[7]) * (1.0 + 1e-9));
            ++compared;
        }
    }
    CHECK(compared == 96);
}

TEST_CASE("valid for whatever costs and communication") {
    constexpr std::uint64_t seed = 92;
    std::uint64_t applied = 0;
    std::uint64_t with_chunks = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(600); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 16, .stages = 32, .microbatches = 64, .cells = 1024}).problem;
        for (auto& limit : p.memory_limit)
            limit = memory_size::unlimited();
        const auto built = interleaved(p);
        CHECK(built.has_value() == is_loop_placed(p.graph));
        if (!built) continue;
        ++applied;
        with_chunks += p.graph.stages() > p.graph.ranks() ? 1 : 0;
        const auto timed = time_order(p, *built);
        REQUIRE_MESSAGE(timed.has_value(), describe(timed.why()));
        CHECK(validate(p, *timed).empty());
        CHECK(oracle::judge(p, *timed).text() == "");
    }
    CHECK(applied > oracle::random_cases(150));
    CHECK(with_chunks > oracle::random_cases(50));
}
