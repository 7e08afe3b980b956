#include "optpipe/planner/modulo/v_pattern_search.hpp"

#include "optpipe/planner/modulo/completion.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

using namespace optpipe;

namespace {

/// Stages of the first half take `factor` times as long as the others, and their stashes are as much larger.
problem v_problem(std::size_t ranks, std::size_t microbatches, double factor, double memory) {
    const graph<dynamic, dynamic, placement::v> g{ranks, microbatches};
    const stage_costs each{duration{10.0}, duration{11.0}, duration{9.0}, memory_size{1.0}, memory_size{0.8}, {}};
    problem p{to_any_graph(g), per_stage<stage_costs>(2 * ranks, each)};
    for (std::size_t s = 0; s < ranks; ++s) {
        auto& c = p.costs[stage{s}];
        c = {factor * c.forward,    factor * c.backward_input, factor * c.backward_weight,
             factor * c.activation, factor * c.weight_stash,   {}};
    }
    p.p2p = hop_times<>{duration{0.5}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{memory};
    return p;
}

std::optional<periodic_pattern> pattern_of(const problem& p, duration period, std::size_t width) {
    random_numbers random{1};
    return detail::v_pattern_beam{p, period, width, 0.0, random}.run();
}

} // namespace

TEST_CASE("at the load bound, ranks of equal load don't idle, and the repeated pattern is a valid schedule") {
    for (const double factor : {1.0, 1.7, 2.0}) {
        CAPTURE(factor);
        const auto p = v_problem(5, 20, factor, 100.0);
        const auto load = p.busiest_work();
        const auto found = pattern_of(p, load, 16);
        REQUIRE(found);
        CHECK(found->period == load);
        CHECK(found->periodicity == 1);
        CHECK(oracle::judge(p, repeat(p, *found)).valid());
        CHECK(!pattern_of(p, 0.999 * load, 16));
    }
}

TEST_CASE("a pattern is within memory, or there is none") {
    const auto roomy = v_problem(6, 24, 2.0, 100.0);
    const auto period = 1.02 * roomy.busiest_work();
    const auto free = pattern_of(roomy, period, 32);
    REQUIRE(free);
    double least = 0.0;
    for (const auto peak : memory_of_repetition(roomy, *free))
        least = std::max(least, peak.value());
    const auto enough = pattern_of(v_problem(6, 24, 2.0, least), period, 32);
    REQUIRE(enough);
    CHECK(oracle::judge(v_problem(6, 24, 2.0, least), repeat(roomy, *enough)).valid());
    CHECK(!pattern_of(v_problem(6, 24, 2.0, 0.9 * least), period, 32));
}

TEST_CASE("with unequal stages and hops patterns are valid") {
    std::size_t count = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(40); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto ranks = random.between(2, 6);
        auto p = v_problem(ranks, 4 * ranks, 1.0, 0.8 * static_cast<double>(2 * ranks));
        for (auto& c : p.costs) {
            const auto some = [&] { return duration{static_cast<double>(random.between(5, 20))}; };
            c.forward = some();
            c.backward_input = some();
            c.backward_weight = some();
        }
        const auto take = [&](const periodic_pattern& found) {
            ++count;
            CHECK(oracle::judge(p, repeat(p, found)).valid());
        };
        detail::v_pattern_search{p, seed, 20'000, p.serial_time(), take, {}}.run();
    }
    CHECK(count >= oracle::random_cases(40));
}

TEST_CASE("the effort limits the search, but one period is tried; periods stay below the limit") {
    const auto p = v_problem(4, 16, 2.0, 100.0);
    std::size_t found = 0;
    const auto spent = [&](std::size_t effort, duration longest) {
        detail::v_pattern_search search{p, 1, effort, longest, [&](const auto&) { ++found; }, {}};
        search.run();
        return search.spent();
    };
    const auto load = p.busiest_work();
    const auto one = spent(0, p.serial_time());
    CHECK(one > 0);
    CHECK(found == 1);
    CHECK(spent(one + 1, p.serial_time()) > one);
    CHECK(spent(one + 1, load) == 0);
}
