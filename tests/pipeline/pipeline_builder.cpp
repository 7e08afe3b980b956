#include "optpipe/pipeline/pipeline_builder.hpp"

#include "optpipe/pipeline/decoder.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/model_shapes.hpp"
#include "optpipe/pipeline/slices.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

constexpr stage_costs costs{1_ms, 2_ms, 1_ms, 1_gb, 0.5_gb, transfer_times{3_ms, 4_ms}};

std::vector<edge> edges_into(const problem& p, stage s) {
    std::vector<edge> found;
    p.graph.for_each_edge_into(s, [&](const edge& e) { found.push_back(e); });
    return found;
}
std::vector<rank> first_ranks(std::size_t count) {
    std::vector<rank> ranks;
    for (std::size_t r = 0; r < count; ++r)
        ranks.emplace_back(r);
    return ranks;
}

} // namespace

TEST_CASE("stages, edges and groups as they were added") {
    pipeline_builder model;
    const auto vision = model.add(rank{2}, costs);
    const auto text = model.add(rank{0}, costs);
    const auto trunk = model.add(rank{1}, costs, {vision, {text, 0.5, 0.25_gb}});
    const auto heads = model.add_shards({rank{0}, rank{2}}, costs, {trunk}, 3_ms);
    auto p = model.build(5);
    CHECK(validate(p).empty());
    CHECK(p.graph.ranks() == 3);
    CHECK(p.graph.stages() == 5);
    CHECK(p.graph.microbatches() == 5);
    CHECK(p.rank_of(vision) == rank{2});
    CHECK(p.rank_of(heads[1]) == rank{2});
    CHECK(edges_into(p, vision).empty());
    CHECK(edges_into(p, trunk) == std::vector<edge>{{vision, trunk}, {text, trunk, 0.5, 0.25_gb}});
    CHECK(edges_into(p, heads[0]) == std::vector<edge>{{trunk, heads[0]}});
    CHECK(p.groups.together(heads[0], heads[1]));
    CHECK_FALSE(p.groups.has(trunk));
    p.groups.for_each_member(heads[0], [](stage, duration delay) { CHECK(delay == 3_ms); });
    CHECK(stash_transfer(p, text) == transfer_times{3_ms, 4_ms});
}

TEST_CASE("a chain of a model is the problem that make_problem makes") {
    auto shape = model_shapes::llama3_8b;
    shape.compute_rate = 400.0;
    shape.host_link_rate = 20.0;
    shape.rank_link_rate = 50.0;
    pipeline_builder model;
    model.add_chain(first_ranks(4), shape);
    const auto p = model.build(8);
    const auto made =
        to_problem(make_problem(graph<4, 8>{}, shape, memory_size::unlimited(), storage::solver_decides{}));
    CHECK(is_plain(p));
    CHECK(p.graph == made.graph);
    CHECK(p.costs == made.costs);
    CHECK(p.storage == made.storage);
    CHECK(p.hop(stage{0}, stage{1}) == made.hop(stage{0}, stage{1}));
    CHECK(p.time_unit == "ms");
    CHECK(p.memory_unit == "GB");
}

TEST_CASE("a decoder with its vocabulary split over all ranks, and slices of its sequences") {
    auto shape = model_shapes::llama3_8b;
    shape.compute_rate = 400.0;
    shape.vocabulary_shards = 4;
    shape.is_sliced = true;
    pipeline_builder model;
    const auto last = model.add_chain(first_ranks(4), shape);
    model.add_shards(first_ranks(4), shape.vocabulary_shard(), {last}, 0.1_ms);
    auto p = model.build(2 * 4);
    auto shares = shape.attention_shares(4);
    std::vector<double> of_stages(shares.begin(), shares.end());
    of_stages.resize(8); // no attention in the shards
    p.microbatches = equal_time_slices(std::vector(2, 8192), of_stages, 4);
    CHECK(validate(p).empty());
    CHECK(p.cost(stage{0}, microbatch{0}).forward.value() == doctest::Approx(0.25 * p.costs[stage{0}].forward.value()));
    CHECK(p.cost(stage{7}, microbatch{0}).forward > 0.25 * p.costs[stage{7}].forward);
    CHECK(p.load(rank{0}) == p.load(rank{3}));
}

TEST_CASE("what breaks the contract is refused, and leaves the pipeline as it was") {
    if (!contracts_throw()) return;
    pipeline_builder model;
    const auto first = model.add(rank{0}, costs);
    CHECK_THROWS_AS(model.add(rank{1}, costs, {first, stage{5}}), contract_error);
    CHECK_THROWS_AS(model.add(rank{1}, costs, {first, first}), contract_error);
    const auto second = model.add(rank{1}, costs);
    CHECK(edges_into(model.build(2), second).empty());
    model.add(rank{-1}, costs, {first});
    CHECK_THROWS_WITH_AS(static_cast<void>(model.build(2)), doctest::Contains("a rank holds no stage"), contract_error);
}
