#include "optpipe/pipeline/transformer.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <cstddef>
#include <initializer_list>

namespace {

using optpipe::even_layers;
using optpipe::graph;
using optpipe::listed_layers;
using optpipe::rank;
using optpipe::stage;
using optpipe::transformer;
using namespace optpipe::literals;

template <class Split> constexpr bool split_is(const Split& split, std::initializer_list<std::size_t> expected) {
    stage s{0};
    for (const std::size_t layers : expected) {
        if (split.layers_of(s, expected.size()) != layers) return false;
        ++s;
    }
    return true;
}
static_assert(split_is(even_layers{32}, {8, 8, 8, 8}));
static_assert(split_is(even_layers{38}, {5, 5, 5, 5, 5, 5, 4, 4}));
static_assert(split_is(even_layers{38, 1}, {4, 5, 5, 5, 5, 5, 5, 4}));
static_assert(split_is(even_layers{22, 1}, {2, 3, 3, 3, 3, 3, 3, 2}));
static_assert(split_is(even_layers{7, 1}, {7}) && split_is(even_layers{7, 1}, {4, 3}));
static_assert(!split_is(even_layers{33}, {8, 8, 8, 9}));

constexpr listed_layers<3> listed() {
    optpipe::per_stage<std::size_t, 3> each(3, 2);
    each[stage{1}] = 5;
    return {each};
}
static_assert(split_is(listed(), {2, 5, 2}));

// A whole problem, planned by arithmetic at compile time.
constexpr transformer<> model{.layers = {32},
                              .hidden = 4096,
                              .sequence = 4096,
                              .microbatch_size = 4,
                              .compute_rate = 440.0,
                              .host_link_rate = 21.0};
constexpr auto problem = make_problem(graph<4, 16>{}, model, 64_gb - model.static_memory(stage{0}, 4));
static_assert(problem.costs[stage{0}] == problem.costs[stage{3}]);
static_assert(problem.load(rank{0}) > 6700_ms && problem.load(rank{0}) < 6720_ms);
static_assert(problem.memory_limit[rank{0}] > 35_gb && problem.memory_limit[rank{0}] < 35.1_gb);

// Without a host link nothing is offloaded; between ranks of one device hops take no time.
constexpr transformer<> alone{.layers = {4}, .hidden = 64, .sequence = 64, .compute_rate = 1.0};
static_assert(!alone.costs(stage{0}, 2).can_offload() && alone.p2p() == 0_ms);

} // namespace
