#include "optpipe/pipeline/costs_by_size.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

/// Two ranks; a forward takes 1 and 0.25 for each of the 64 samples of a step, an activation 0.5 for each.
problem measured(std::size_t microbatches) {
    const auto samples = 64.0 / static_cast<double>(microbatches);
    const stage_costs costs{duration{1 + 0.25 * samples}, duration{2 * samples},       duration{samples},
                            memory_size{0.5 * samples},   memory_size{0.25 * samples}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, microbatches}), per_stage<stage_costs>(2, costs)};
    for (const stage s : p.graph.all_stages()) {
        p.set_stage(s, costs);
        p.storage[s].push_back({"full", memory_size{0.1 * samples}, duration{samples}, {}, {}, {}});
        p.storage[s].push_back({"offload",
                                costs.activation,
                                {},
                                {},
                                costs.activation,
                                transfer_times{duration{0.1 + samples}, duration{samples}}});
    }
    p.p2p = hop_times<>{duration{0.5 + 0.01 * samples}};
    p.memory_limit[rank{0}] = memory_size{40.0 - 0.1 * samples};
    return p;
}

} // namespace

TEST_CASE("costs are linear in the size of a microbatch, between and beyond the measured sizes") {
    const costs_by_size costs{{measured(16), measured(8)}};
    CHECK(costs.measured_numbers() == std::vector<std::size_t>{8, 16});
    for (const std::size_t number : {4U, 8U, 10U, 16U, 32U, 64U}) {
        CAPTURE(number);
        const auto p = costs.at(number);
        const auto expected = measured(number);
        CHECK(validate(p).empty());
        CHECK(p.graph == expected.graph);
        const stage s{1};
        CHECK(p.costs[s].forward.value() == doctest::Approx(expected.costs[s].forward.value()));
        CHECK(p.costs[s].weight_stash.value() == doctest::Approx(expected.costs[s].weight_stash.value()));
        REQUIRE(p.storage[s].size() == 3);
        CHECK(p.storage[s][1].held.value() == doctest::Approx(expected.storage[s][1].held.value()));
        CHECK(p.storage[s][1].recompute.value() == doctest::Approx(expected.storage[s][1].recompute.value()));
        CHECK(p.storage[s][2].transfer->offload.value() ==
              doctest::Approx(expected.storage[s][2].transfer->offload.value()));
        CHECK(p.p2p(rank{0}, rank{1}).value() == doctest::Approx(expected.p2p(rank{0}, rank{1}).value()));
        CHECK(p.memory_limit[rank{0}].value() == doctest::Approx(expected.memory_limit[rank{0}].value()));
        CHECK(p.memory_limit[rank{1}].is_unlimited());
    }
}

TEST_CASE("of three sizes, the two around a number count") {
    auto odd = measured(4);
    odd.costs[stage{0}].forward = duration{100};
    const costs_by_size costs{{odd, measured(8), measured(16)}};
    CHECK(costs.at(12).costs[stage{0}].forward.value() ==
          doctest::Approx(measured(12).costs[stage{0}].forward.value()));
    CHECK(costs.at(4).costs[stage{0}].forward.value() == doctest::Approx(100));
    CHECK(costs.at(6).costs[stage{0}].forward > costs.at(8).costs[stage{0}].forward);
}

TEST_CASE("problems that differ in more than costs are refused") {
    const auto refused = [](const problem& other) {
        CHECK_THROWS_AS((costs_by_size{{measured(8), other}}), input_error);
    };
    refused(measured(8));
    CHECK_THROWS_AS((costs_by_size{{measured(8)}}), input_error);
    auto other = measured(16);
    other.storage[stage{1}].pop_back();
    refused(other);
    other = measured(16);
    other.split_backward = false;
    refused(other);
    other = measured(16);
    other.time_unit = "s";
    refused(other);
    auto longer = problem{to_any_graph(graph<dynamic, dynamic>{3, 16}), per_stage<stage_costs>(3)};
    refused(longer);
}
