#include "optpipe/pipeline/edges.hpp"

#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <vector>

namespace {

using namespace optpipe;

/// A fork and a join: 0 feeds 1 and 2, which feed 3.
struct diamond {
    static constexpr std::array edges{edge{stage{0}, stage{1}, 1.0, {}},
                                      edge{stage{0}, stage{2}, 2.0, memory_size{0.5}},
                                      edge{stage{1}, stage{3}, 1.0, {}}, edge{stage{2}, stage{3}, 1.0, {}}};
};
using diamond_graph = graph<2, 3, placement::loop<2>, edges::listed_by<diamond>>;

std::vector<edge> listed() { return {diamond::edges.begin(), diamond::edges.end()}; }

template <class Edges> std::vector<edge> into(const Edges& e, std::size_t s, std::size_t stages) {
    std::vector<edge> all;
    e.for_each_into(stage{s}, stages, [&](const edge& each) { all.push_back(each); });
    return all;
}
template <class Edges> std::vector<edge> out_of(const Edges& e, std::size_t s, std::size_t stages) {
    std::vector<edge> all;
    e.for_each_out_of(stage{s}, stages, [&](const edge& each) { all.push_back(each); });
    return all;
}

} // namespace

TEST_CASE("a chain leads from each stage to the next") {
    const edges::chain feeds;
    CHECK(into(feeds, 0, 3).empty());
    CHECK(into(feeds, 2, 3) == std::vector{edge{stage{1}, stage{2}, 1.0, {}}});
    CHECK(out_of(feeds, 0, 3) == std::vector{edge{stage{0}, stage{1}, 1.0, {}}});
    CHECK(out_of(feeds, 2, 3).empty());
    CHECK(feeds.is_chain());
}

TEST_CASE("edges given at run time are visited from both ends, whatever their order") {
    auto reversed = listed();
    reversed = {reversed.rbegin(), reversed.rend()};
    const edges::any feeds{4, reversed};
    CHECK(feeds == edges::any{4, listed()});
    CHECK_FALSE(feeds.is_chain());
    const edges::listed_by<diamond> same;
    for (std::size_t s = 0; s < 4; ++s) {
        CHECK(into(feeds, s, 4) == into(same, s, 4));
        CHECK(out_of(feeds, s, 4) == out_of(same, s, 4));
    }
    CHECK(into(feeds, 3, 4).size() == 2);
    CHECK(out_of(feeds, 0, 4).back().held == memory_size{0.5});
}

TEST_CASE("a list of the chain's edges is the chain") {
    const std::vector<edge> each{edge{stage{1}, stage{2}, 1.0, {}}, edge{stage{0}, stage{1}, 1.0, {}}};
    CHECK(edges::any{3, each} == edges::any{});
    CHECK(edges::any{1, {}}.is_chain());
    const edges::any none{2, {}};
    CHECK_FALSE(none.is_chain());
    CHECK(into(none, 1, 2).empty());
    CHECK(into(edges::any{}, 1, 2).size() == 1);
    auto other = each;
    other[0].size = 2.0;
    CHECK_FALSE(edges::any{3, other}.is_chain());
    other = each;
    other[1].held = memory_size{1};
    CHECK_FALSE(edges::any{3, other}.is_chain());
    CHECK_FALSE(edges::any{4, each}.is_chain());
}

TEST_CASE("a static graph of stages is one at run time, too") {
    constexpr diamond_graph g{};
    static_assert(!g.is_chain() && !diamond_graph::is_always_chain && graph<2, 3>::is_always_chain);
    const auto any = to_any_graph(g);
    CHECK(any.stages() == 4);
    std::vector<edge> all;
    for (const stage s : any.all_stages())
        any.for_each_edge_out_of(s, [&](const edge& each) { all.push_back(each); });
    CHECK(all == listed());
    CHECK(any == to_any_graph(any));
    CHECK(to_any_graph(graph<2, 3>{}).is_chain());
}

TEST_CASE("messages take as long as their edge and their microbatch say") {
    basic_problem<diamond_graph> p{diamond_graph{}, per_stage<stage_costs, 4>(4, stage_costs{})};
    p.p2p = hop_times<2>{2, std::vector{duration{0}, duration{1}, duration{3}, duration{0}}};
    const std::vector<cost_factors> factors{{}, {1, 1, 1, 1, 2}, {}};
    p.microbatches.set_factors(factors);
    CHECK(p.message_time(diamond::edges[0], microbatch{0}) == duration{1});
    CHECK(p.message_time(diamond::edges[0], microbatch{1}) == duration{2});
    CHECK(p.gradient_message_time(diamond::edges[0], microbatch{1}) == duration{6});
    CHECK(p.message_time(diamond::edges[1], microbatch{1}) == duration{0}); // one rank
    CHECK(p.gradient_message_time(diamond::edges[3], microbatch{0}) == duration{3});
}

TEST_CASE("a problem with dynamic extents keeps edges, groups and microbatches") {
    basic_problem<diamond_graph> p{
        diamond_graph{},
        per_stage<stage_costs, 4>(4, stage_costs{duration{1}, duration{1}, duration{1}, memory_size{1}})};
    std::vector<cost_factors> factors(12);
    factors[5].memory = 2.0; // stage 1, microbatch 2
    p.microbatches.set_factors_by_stage(factors, 3);
    p.microbatches.set_sequences(std::vector{7, 7, 8});
    p.groups.add(std::vector{stage{1}, stage{2}}, duration{0.5}, 4);
    p.costs[stage{0}].kv = memory_size{0.25};
    CHECK_FALSE(p.is_simple());
    const auto copy = to_problem(p);
    CHECK(copy.graph == to_any_graph(p.graph));
    CHECK(copy.costs[stage{0}].kv == memory_size{0.25});
    CHECK(copy.microbatches.factors(stage{1}, microbatch{2}).memory == 2.0);
    CHECK(copy.microbatches.factors(stage{2}, microbatch{1}) == usual_factors);
    CHECK(copy.microbatches.slice_before(microbatch{1}) == microbatch{0});
    CHECK_FALSE(copy.microbatches.slice_before(microbatch{2}));
    CHECK(copy.groups.together(stage{1}, stage{2}));
    copy.groups.for_each_member(stage{1}, [](stage, duration delay) { CHECK(delay == duration{0.5}); });
    const auto again = to_problem(copy);
    CHECK(again.microbatches == copy.microbatches);
    CHECK(again.groups == copy.groups);
    CHECK(copy.memory_scale() == p.memory_scale());
    CHECK(copy.serial_time() == p.serial_time());
}
