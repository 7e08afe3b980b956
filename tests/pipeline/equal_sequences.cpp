#include "optpipe/pipeline/equal_sequences.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace optpipe;

problem step(std::size_t microbatches) {
    const graph<dynamic, dynamic> g{2, microbatches};
    const stage_costs each{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{1}, {}};
    return make_problem(to_any_graph(g), uniform_memory{each}, memory_size::unlimited());
}

} // namespace

TEST_CASE("equal microbatches are sequences of one") {
    const auto found = sequences_by_cost(step(5));
    REQUIRE(found.size() == 1);
    CHECK(found[0].count == 5);
    CHECK(found[0].slices == std::vector{microbatch{0}});
}

TEST_CASE("sequences are equal if their slices are, one by one") {
    auto p = step(7);
    p.microbatches.set_sequences(std::vector{0, 0, 1, 1, 2, 3, 3});
    auto found = sequences_by_cost(p);
    REQUIRE(found.size() == 2);
    CHECK(found[0].count == 3);
    CHECK(found[0].slices == std::vector{microbatch{0}, microbatch{1}});
    CHECK(found[1].count == 1);
    CHECK(found[1].slices == std::vector{microbatch{4}});
    // On the second stage, the last slice costs more.
    std::vector<cost_factors> factors(14);
    factors[13].forward = 2.0;
    p.microbatches.set_factors_by_stage(factors, 7);
    found = sequences_by_cost(p);
    REQUIRE(found.size() == 3);
    CHECK(found[0].count == 2);
    CHECK(found[2].slices == std::vector{microbatch{5}, microbatch{6}});
}
