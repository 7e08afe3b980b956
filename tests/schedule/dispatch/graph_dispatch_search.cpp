// The search for a good run of the dispatcher: how it ends, and the orders of sequences that it tries.
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/slices.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace optpipe;

/// Microbatches from 0.4 to 1.6 times the mean, on eight ranks in v placement with much memory.
problem uneven(std::uint64_t seed) {
    constexpr stage_costs each{duration{10}, duration{12}, duration{8}, memory_size{1}, memory_size{0.5}};
    const graph<dynamic, dynamic, placement::v> g{8, 24};
    auto p = make_problem(to_any_graph(g), uniform_memory{each}, memory_size{18});
    optpipe::random_numbers random{seed};
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < p.graph.microbatches(); ++m) {
        const double length = 0.4 + 1.2 * random.share();
        factors.push_back({length, length, length, length, length});
    }
    p.microbatches.set_factors(factors);
    return p;
}

} // namespace

TEST_CASE("a search that is to stop ends once it has an order, even if runs get stuck") {
    constexpr std::uint64_t seed = 71;
    std::size_t better = 0;
    const auto cases = oracle::random_cases(200);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::make_random_problem(
                           random, {.ranks = 4, .stages = 8, .microbatches = 8, .cells = 48, .graph_percent = 100})
                           .problem;
        std::size_t looks = 0;
        const stop_when at_once{[&] { return ++looks > 0; }};
        best_order<any_graph> best{p};
        graph_dispatch_search<any_graph>{p, best, at_once, 10'000, 1}.run();
        if (!best.found()) continue;
        CHECK(looks < 50); // of 84 runs for each choice of options and sequences
        best_order<any_graph> serial{p};
        serial.offer(one_at_a_time(p));
        better += best.value() < serial.value() ? 1 : 0;
    }
    CHECK(better > cases / 2);
}

TEST_CASE("with the longest microbatches inside, idle time before and after them is short") {
    constexpr std::size_t grid = 3 * 84; // all parameters with three orders of sequences
    double ratios = 0.0;
    constexpr std::uint64_t draws = 3;
    for (std::uint64_t seed = 1; seed <= draws; ++seed) {
        const auto p = uneven(seed);
        best_order<any_graph> best{p};
        graph_dispatch_search<any_graph>{p, best, {}, grid, seed}.run();
        ratios += best.value() / p.load(rank{0});
    }
    CHECK(ratios / draws < 1.1);
}

TEST_CASE("if memory is scarce, some of the pairs make a shorter step than all or none") {
    auto p = pair_problem(4, 16, 4.0, true);
    for (auto& limit : p.memory_limit)
        limit = memory_size{6.75};
    const auto length_with = [&](std::size_t trials) {
        best_order<any_graph> best{p};
        graph_dispatch_search<any_graph>{p, best, {}, trials, 1}.run();
        return best.value();
    };
    constexpr std::size_t grid = 2 * 84; // all parameters, with all pairs and with none
    CHECK(length_with(grid + 1000) < 0.98 * length_with(grid));
}

TEST_CASE("slices in less memory than Seq1F1B needs: nearly as short as Seq1F1B") {
    // F 1, B 2, and half of both is attention. Seq1F1B takes 50.625 with a peak of 2.118. With two slices less in
    // flight, its peak is within the limit, and it takes 61.875.
    const graph<dynamic, dynamic> g{8, 16 * 8};
    constexpr stage_costs each{duration{1}, duration{1.5}, duration{0.5}, memory_size{1}};
    auto p = make_problem(to_any_graph(g), uniform_memory{each}, memory_size{1.875});
    p.microbatches = equal_time_slices(std::vector<double>(16, 1.0), 0.5, 8);
    best_order<any_graph> best{p};
    graph_dispatch_search<any_graph>{p, best, {}, 100, 1}.run();
    CHECK(best.value() < duration{60.0});
}

TEST_CASE("a search without any time still overlaps the microbatches") {
    const auto p = uneven(1);
    const stop_when at_once{[] { return true; }};
    best_order<any_graph> best{p};
    graph_dispatch_search<any_graph>{p, best, at_once, 10, 1}.run();
    CHECK(best.value() < 0.25 * p.serial_time()); // on eight ranks
}
