// The search for a good run of the dispatcher: how it ends.
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"

#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;

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
        CHECK(looks < 50); // of 252 runs for each choice of options and sequences
        best_order<any_graph> serial{p};
        serial.offer(detail::one_sequence_at_a_time(p));
        better += best.value() < serial.value() ? 1 : 0;
    }
    CHECK(better > cases / 2);
}
