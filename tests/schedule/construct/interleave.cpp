#include "optpipe/schedule/construct/interleave.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using optpipe::any_graph;
using optpipe::compute_lanes;
using optpipe::operation;
using optpipe::rank;

any_graph linear(std::size_t ranks, std::size_t microbatches) {
    return to_any_graph(optpipe::graph<optpipe::dynamic, optpipe::dynamic>{ranks, microbatches});
}

compute_lanes lanes_of(const std::vector<std::vector<std::string>>& texts) {
    compute_lanes lanes(texts.size());
    for (std::size_t r = 0; r < texts.size(); ++r)
        for (const auto& text : texts[r])
            lanes[rank{r}].push_back(oracle::spelled(text));
    return lanes;
}

} // namespace

TEST_CASE("lanes become one order that keeps each of them") {
    const auto g = linear(2, 2);
    const auto lanes = lanes_of({{"0F0", "0F1", "0B0", "0B1"}, {"1F0", "1B0", "1F1", "1I1", "1W1"}});
    const auto merged = interleave(g, lanes);
    REQUIRE(merged.has_value());
    CHECK(merged->operations.size() == 9);
    for (const rank r : g.all_ranks()) {
        std::vector<operation> own;
        for (const auto& op : merged->operations)
            if (g.rank_of(op.stage) == r) own.push_back(op);
        CHECK(own == lanes[r]);
    }
    CHECK(simulate(make_problem(g, optpipe::unit_memory{}), *merged).has_value());
}

TEST_CASE("lanes that wait for each other in a cycle are refused") {
    // Rank 0 needs the gradient of 1 before it sends 0, and rank 1 needs 0 first.
    const auto g = linear(2, 2);
    const auto merged = interleave(g, lanes_of({{"0F1", "0B1", "0F0", "0B0"}, {"1F0", "1B0", "1F1", "1B1"}}));
    REQUIRE_FALSE(merged.has_value());
    CHECK(merged.why().reason == optpipe::refusal_reason::not_executable);
    CHECK(merged.why().sentence ==
          "the ranks wait for each other in a cycle: 0B1 (rank 0) comes before 1I1, which it waits for");
    CHECK(merged.why().rank == rank{0});
    CHECK(merged.why().position == 1);
}

TEST_CASE("lanes of another graph are refused") {
    const auto g = linear(2, 1);
    const auto few = interleave(g, lanes_of({{"0F0", "0B0"}}));
    REQUIRE_FALSE(few.has_value());
    CHECK(few.why().reason == optpipe::refusal_reason::not_executable);
    CHECK(few.why().sentence == "there are lanes of 1 ranks, and the graph has 2");
    for (const std::string strange : {"99F0", "1F1"}) {
        const auto other = interleave(g, lanes_of({{"0F0", "0B0"}, {"1F0", strange, "1B0"}}));
        REQUIRE_FALSE(other.has_value());
        CHECK(other.why().sentence == "no such stage or microbatch");
        CHECK(other.why().rank == rank{1});
        CHECK(other.why().position == 1);
    }
}

TEST_CASE("a missing operation leads to a deadlock") {
    const auto merged = interleave(linear(2, 1), lanes_of({{"0F0", "0B0"}, {"1F0", "1W0"}}));
    REQUIRE_FALSE(merged.has_value());
    CHECK(merged.why().rank == rank{0});
    CHECK(merged.why().position == 1);
}
