// Steps of sequences in slices, which have more operations than a short round has moves for.
#include "optpipe/pipeline/slices.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/planner/order_search/order_search.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using namespace optpipe;

/// Eight sequences in eight slices each, on six ranks with memory for `sequences` sequences.
problem sliced(double sequences) {
    const graph<dynamic, dynamic> g{6, 8 * 8};
    constexpr stage_costs each{duration{1}, duration{1.5}, duration{0.5}, memory_size{1}, memory_size{0.5}};
    auto p = make_problem(to_any_graph(g), uniform_memory{each}, memory_size{sequences});
    p.microbatches = equal_time_slices(std::vector<double>(8, 1.0), 0.5, 8);
    return p;
}

} // namespace

TEST_CASE("with few moves per operation, a round begins colder and gets further") {
    constexpr std::size_t moves = 10'000; // for 1152 operations, if all backwards are split
    double colder = 0.0;
    double hot = 0.0;
    for (const double sequences : {1.3, 1.5, 1.8}) {
        const auto p = sliced(sequences);
        best_order<any_graph> start{p};
        graph_dispatch_search<any_graph>{p, start, {}, 20, 1}.run();
        const auto reached = [&](const order_search_parameters& with) {
            search_state state{p};
            state.offer(*start, "start");
            order_search(state, with, "orders");
            return state.objective() / start.value();
        };
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
            const order_search_parameters with{.seed = seed, .moves = moves};
            auto unchanged = with;
            unchanged.least_first_temperature = unchanged.first_temperature;
            colder += reached(with);
            hot += reached(unchanged);
        }
    }
    CAPTURE(colder);
    CAPTURE(hot);
    CHECK(colder < hot);
}
