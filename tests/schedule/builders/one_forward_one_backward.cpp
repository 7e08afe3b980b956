#include "optpipe/schedule/builders/one_forward_one_backward.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

namespace {

using optpipe::one_forward_one_backward;
using optpipe::rank;
using optpipe::stage;
using namespace optpipe::literals;

static_assert(one_forward_one_backward.name == "1f1b");
static_assert(peak_stash(one_forward_one_backward(optpipe::graph<4, 8>{})) == 4);
constexpr auto unit_problem = make_problem(optpipe::graph<4, 8>{}, optpipe::unit_memory{}, 4_gb);
constexpr auto unit_schedule = *simulate(unit_problem, one_forward_one_backward(unit_problem.graph));
static_assert(is_valid(unit_problem, unit_schedule));
static_assert(measure(unit_problem, unit_schedule).makespan == 33_ms);
static_assert(measure(unit_problem, unit_schedule).peak_memory[rank{0}] == 4_gb);
static_assert(measure(unit_problem, unit_schedule).peak_memory[rank{3}] == 1_gb);

} // namespace

TEST_CASE("as many forwards as there are stages behind, then one of each") {
    const auto p = to_problem(make_problem(optpipe::graph<2, 3>{}, optpipe::unit_memory{}));
    const auto built = one_forward_one_backward(p);
    REQUIRE(built.has_value());
    CHECK(oracle::spell(*simulate(p, *built)) ==
          "0F0@0 0F1@1 1F0@1 1B0@2 0B0@4 1F1@4 1B1@5 0F2@6 0B1@7 1F2@7 1B2@8 0B2@10");
}

TEST_CASE("only one stage per rank, but in any order of the ranks") {
    const auto v = to_problem(make_problem(optpipe::graph<2, 3, optpipe::placement::v>{}, optpipe::unit_memory{}));
    const auto refused = one_forward_one_backward(v);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.why().reason == optpipe::refusal_reason::does_not_apply);
    CHECK(refused.why().sentence == "1F1B is for one stage per rank");

    optpipe::per_stage<rank> turned(3);
    for (const stage s : turned.indices())
        turned[s] = rank{2 - s.position()};
    const optpipe::any_graph g{3, 4, optpipe::placement::map<>{turned}};
    const auto p = make_problem(g, optpipe::unit_memory{});
    const auto m = measure(p, *simulate(p, *one_forward_one_backward(p)));
    CHECK(m.makespan == 18_ms);
    CHECK(m.peak_memory[rank{2}] == 3_gb);
    CHECK(m.peak_memory[rank{0}] == 1_gb);
}

TEST_CASE("holds as many stashes as there are stages behind") {
    constexpr std::uint64_t seed = 72;
    int applied = 0;
    for (std::uint64_t i = 0; i < 400; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p = oracle::make_random_problem(random, {.ranks = 6, .stages = 6, .microbatches = 8, .cells = 48}).problem;
        if (!one_stage_per_rank(p.graph)) continue;
        ++applied;
        for (const stage s : p.graph.all_stages()) {
            const auto held = std::min(p.graph.stages() - s.position(), p.graph.microbatches());
            p.memory_limit[p.rank_of(s)] = static_cast<double>(held) * p.costs[s].activation;
        }
        const auto timed = simulate(p, *one_forward_one_backward(p));
        REQUIRE(timed.has_value());
        CHECK(validate(p, *timed).empty());
        CHECK(oracle::judge(p, *timed).text() == "");
        const rank first = p.rank_of(stage{0});
        if (p.costs[stage{0}].activation == 0_gb) continue;
        p.memory_limit[first] = 0.9 * p.memory_limit[first];
        CHECK_FALSE(simulate(p, *one_forward_one_backward(p)).has_value());
    }
    CHECK(applied > 100);
}
