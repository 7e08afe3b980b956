#include "optpipe/schedule/construct/offload_search.hpp"

#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <stop_token>
#include <utility>

using namespace optpipe;

namespace {

/// V placement with unit passes and `limit` stashes per rank; transfers take `each`.
problem v_problem(std::size_t ranks, std::size_t microbatches, double limit, double each) {
    stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    unit.transfer = transfer_times{duration{each}, duration{each}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches}),
              per_stage<stage_costs>(2 * ranks, unit)};
    for (auto& l : p.memory_limit)
        l = memory_size{limit};
    return p;
}

} // namespace

TEST_CASE("a stopped search for transfers has made one attempt") {
    const auto p = v_problem(4, 12, 3.0, 2.0);
    const cell_flags may_offload(p.graph.cells(), static_cast<unsigned char>(1));
    const auto computations = order_of(*build_schedule(detail::without_limits(p), zero_bubble_v));
    detail::offload_search<any_graph> whole{p, may_offload};
    whole.run(computations);
    detail::offload_search<any_graph> stopped{p, may_offload};
    const stop_when at_once{[] { return true; }};
    stopped.run(computations, at_once);
    CHECK(stopped.spent() > 0);
    CHECK(2 * stopped.spent() < whole.spent());
    CHECK(whole.value() <= stopped.value());
    CHECK(std::move(stopped).take().operations.size() >= computations.operations.size());
}

TEST_CASE("an abandoned search for transfers makes none") {
    const auto p = v_problem(4, 12, 3.0, 2.0);
    const cell_flags may_offload(p.graph.cells(), static_cast<unsigned char>(1));
    const auto computations = order_of(*build_schedule(detail::without_limits(p), zero_bubble_v));
    std::stop_source source;
    source.request_stop();
    const auto token = source.get_token();
    detail::offload_search<any_graph> abandoned{p, may_offload};
    abandoned.run(computations, {}, stop_check{token});
    CHECK(abandoned.spent() == 0);
    CHECK(abandoned.value().is_unlimited());
    const auto built = pipe_offload(p, stop_check{token});
    REQUIRE_FALSE(built);
    CHECK(built.why().reason == was_stopped().reason);
}
