#include "optpipe/schedule/builders/gpipe.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

using optpipe::gpipe;
using optpipe::memory_size;
using optpipe::rank;
using namespace optpipe::literals;

static_assert(gpipe.name == "gpipe");
static_assert(peak_stash(gpipe(optpipe::graph<4, 8>{})) == 8);
constexpr auto unit_problem = make_problem(optpipe::graph<4, 8>{}, optpipe::unit_memory{});
constexpr auto unit_schedule = *simulate(unit_problem, gpipe(unit_problem.graph));
static_assert(is_valid(unit_problem, unit_schedule));
static_assert(measure(unit_problem, unit_schedule).makespan == 33_ms);
static_assert(measure(unit_problem, unit_schedule).peak_memory[rank{0}] == 8_gb);

} // namespace

TEST_CASE("all forwards, then all backwards") {
    const auto p = to_problem(make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}));
    const auto built = gpipe(p);
    REQUIRE(built.has_value());
    CHECK(oracle::spell(*simulate(p, *built)) == "0F0@0 0F1@1 1F0@1 1F1@2 1B0@3 0B0@5 1B1@5 0B1@7");
}

TEST_CASE("any placement, and stage by stage on a rank") {
    const auto p = to_problem(make_problem(optpipe::graph<1, 2, optpipe::placement::v>{}, optpipe::unit_memory{}));
    CHECK(oracle::spell(*simulate(p, *gpipe(p))) == "0F0@0 0F1@1 1F0@2 1F1@3 1B0@4 1B1@6 0B0@8 0B1@10");
}

TEST_CASE("valid whenever all stashes fit, refused by the simulator otherwise") {
    constexpr std::uint64_t seed = 71;
    int fits = 0;
    for (std::uint64_t i = 0; i < 300; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        auto p =
            oracle::make_random_problem(random, {.ranks = 6, .stages = 12, .microbatches = 8, .cells = 60}).problem;
        const auto order = *gpipe(p);
        optpipe::per_rank<memory_size> held(p.graph.ranks());
        for (const optpipe::stage s : p.graph.all_stages())
            held[p.rank_of(s)] += static_cast<double>(p.graph.microbatches()) * p.costs[s].activation;
        bool all_fit = true;
        for (const rank r : p.graph.all_ranks())
            all_fit = all_fit && held[r] <= p.memory_limit[r];
        const auto timed = simulate(p, order);
        CHECK(timed.has_value() == all_fit);
        if (!timed) continue;
        ++fits;
        CHECK(validate(p, *timed).empty());
        CHECK(oracle::judge(p, *timed).text() == "");
        for (const rank r : p.graph.all_ranks())
            CHECK(measure(p, *timed).peak_memory[r] == held[r]);
    }
    CHECK(fits > 50);
}
