#include "optpipe/pipeline/graph.hpp"

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <type_traits>

namespace {

using optpipe::any_graph;
using optpipe::bounded_vector;
using optpipe::dynamic;
using optpipe::graph;
using optpipe::microbatch;
using optpipe::per_rank;
using optpipe::per_stage;
using optpipe::rank;
using optpipe::stage;
namespace placement = optpipe::placement;

// Static extents take no memory.
static_assert(std::is_empty_v<graph<2, 8>> && sizeof(graph<2, 8>) == 1);
static_assert(std::is_empty_v<graph<2, 8, placement::v>> && sizeof(graph<2, 8, placement::v>) == 1);
static_assert(!std::is_empty_v<graph<dynamic, 8>> && sizeof(graph<dynamic, 8>) == sizeof(std::size_t));
static_assert(sizeof(graph<dynamic, dynamic>) == 2 * sizeof(std::size_t));

static_assert(graph<4, 8>::stage_extent == 4 && graph<dynamic, 8>::stage_extent == dynamic);
static_assert(graph<4, 8, placement::loop<3>>::stage_extent == 12);
static_assert(graph<4, 8, placement::loop<>>::stage_extent == dynamic);
static_assert(graph<dynamic, 8, placement::loop<3>>::stage_extent == dynamic);
static_assert(graph<4, 8, placement::v>::stage_extent == 8 && graph<dynamic, 8, placement::v>::stage_extent == dynamic);
static_assert(graph<4, 8, placement::map<6>>::stage_extent == 6 &&
              graph<4, 8, placement::map<>>::stage_extent == dynamic);
static_assert(graph<4, 8>::is_static && graph<4, 8, placement::map<6>>::is_static);
static_assert(!graph<dynamic, 8>::is_static && !graph<4, dynamic>::is_static &&
              !graph<4, 8, placement::loop<>>::is_static);

static_assert(graph<4, 8>{}.ranks() == 4 && graph<4, 8>{}.microbatches() == 8 && graph<4, 8>{}.stages() == 4);
static_assert(graph<dynamic, dynamic>{4, 8}.ranks() == 4 && graph<dynamic, dynamic>{4, 8}.microbatches() == 8);
static_assert(graph<dynamic, 8, placement::v>{4, 8}.stages() == 8);
static_assert(graph<dynamic, dynamic, placement::loop<>>{4, 8, placement::loop<>{3}}.stages() == 12);
static_assert(graph<4, 8, placement::loop<>>{placement::loop<>{3}}.stages() == 12);
static_assert(graph<4, 8>{4, 8} == graph<4, 8>{} && graph<dynamic, 8>{4, 8} != graph<dynamic, 8>{5, 8});
static_assert(graph<4, 8>{}.all_ranks().size() == 4 && graph<4, 8, placement::v>{}.all_stages().size() == 8);
static_assert(std::same_as<decltype(*graph<4, 8>{}.all_microbatches().begin()), microbatch>);

// The placement alone makes a graph only if no other extent is open.
static_assert(std::is_constructible_v<graph<4, 8, placement::loop<>>, placement::loop<>>);
static_assert(!std::is_constructible_v<graph<dynamic, 8, placement::loop<>>, placement::loop<>>);

static_assert(optpipe::pipeline_graph<graph<4, 8>> && optpipe::pipeline_graph<any_graph>);
static_assert(!optpipe::pipeline_graph<int> && !optpipe::pipeline_graph<placement::linear>);

template <class Graph> constexpr bool ranks_are(const Graph& g, std::initializer_list<int> expected) {
    if (g.stages() != expected.size()) return false;
    stage s{0};
    for (const int r : expected) {
        if (g.rank_of(s) != rank{r}) return false;
        ++s;
    }
    return true;
}

static_assert(ranks_are(graph<4, 1>{}, {0, 1, 2, 3}));
static_assert(ranks_are(graph<3, 1, placement::loop<2>>{}, {0, 1, 2, 0, 1, 2}));
static_assert(ranks_are(graph<3, 1, placement::v>{}, {0, 1, 2, 2, 1, 0}));
static_assert(ranks_are(graph<1, 1, placement::v>{}, {0, 0}));
static_assert(!ranks_are(graph<3, 1, placement::v>{}, {0, 1, 2, 0, 1, 2}));
static_assert(ranks_are(graph<dynamic, dynamic>{2, 1}, {0, 1}));

constexpr placement::map<4> there_and_back() {
    per_stage<rank, 4> ranks;
    ranks[stage{1}] = ranks[stage{2}] = rank{1};
    return placement::map<4>{ranks};
}
static_assert(ranks_are(graph<2, 1, placement::map<4>>{there_and_back()}, {0, 1, 1, 0}));
static_assert(there_and_back() == there_and_back() && there_and_back() != placement::map<4>{});

// The same pipeline with all extents dynamic.
static_assert(ranks_are(to_any_graph(graph<3, 5, placement::v>{}), {0, 1, 2, 2, 1, 0}));
static_assert(to_any_graph(graph<3, 5>{}).ranks() == 3 && to_any_graph(graph<3, 5>{}).microbatches() == 5);
static_assert(to_any_graph(graph<2, 5, placement::v>{}) ==
              to_any_graph(graph<2, 5, placement::map<4>>{there_and_back()}));

template <class Graph> constexpr bool holds(const Graph& g, rank r, std::initializer_list<int> expected) {
    const auto stages = stages_by_rank(g)[r];
    if (stages.size() != expected.size()) return false;
    std::size_t i = 0;
    for (const int s : expected)
        if (stages[i++] != stage{s}) return false;
    return true;
}
static_assert(holds(graph<3, 1, placement::v>{}, rank{0}, {0, 5}) &&
              holds(graph<3, 1, placement::v>{}, rank{2}, {2, 3}));
static_assert(holds(graph<3, 1, placement::loop<2>>{}, rank{1}, {1, 4}));
static_assert(holds(graph<dynamic, 1, placement::loop<>>{3, 1, placement::loop<>{2}}, rank{1}, {1, 4}));
static_assert(holds(graph<2, 1, placement::map<4>>{placement::map<4>{}}, rank{1}, {}));
static_assert(std::same_as<decltype(stages_by_rank(graph<2, 1>{})), per_rank<bounded_vector<stage, 2>, 2>>);

static_assert(one_stage_per_rank(graph<4, 8>{}) && one_stage_per_rank(to_any_graph(graph<4, 8>{})));
static_assert(!one_stage_per_rank(graph<4, 8, placement::v>{}));
static_assert(!one_stage_per_rank(graph<4, 8, placement::map<4>>{there_and_back()}));

} // namespace
