#include "optpipe/planner/strategies/v_pattern_strategy.hpp"

#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/strategies/standard_strategies.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// Two kinds of stages, and memory in proportion to the ranks.
problem v_problem(std::size_t ranks, std::size_t microbatches, double memory = 2.2) {
    const stage_costs each{duration{10.0}, duration{11.0}, duration{9.0}, memory_size{1.0}, memory_size{0.8}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches}),
              per_stage<stage_costs>(2 * ranks, each)};
    for (std::size_t s = 0; s + 1 < ranks; ++s) {
        auto& c = p.costs[stage{s}];
        c = {2.0 * c.forward,    2.0 * c.backward_input, 2.0 * c.backward_weight,
             2.0 * c.activation, 2.0 * c.weight_stash,   {}};
    }
    p.p2p = hop_times<>{duration{0.3}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{memory * static_cast<double>(ranks)};
    return p;
}
problem with_options(problem p) {
    for (const stage s : p.graph.all_stages()) {
        const auto& c = p.costs[s];
        p.storage[s].push_back({.name = "norms", .held = 0.8 * c.activation, .backward_extra = 0.02 * c.forward});
        p.storage[s].push_back({.name = "again", .held = 0.1 * c.activation, .recompute = c.forward});
    }
    return p;
}

schedule found_for(const problem& p, std::size_t effort) {
    search_state state{p};
    v_pattern_strategy{}(state, {.seed = 1, .effort = effort});
    REQUIRE(state.incumbent());
    CHECK(oracle::judge(p, *state.incumbent()).valid());
    return *state.incumbent();
}

/// The objective of the best builder, each with each storage option; without `left_out`.
duration best_built(const problem& p, std::vector<std::string> left_out = {}) {
    auto all = std::move(left_out);
    for (const auto& strategy : standard_strategies())
        all.push_back(strategy.name());
    return plan(p, {.threads = 1, .without = std::move(all)})->objective;
}

} // namespace

TEST_CASE("with little memory, patterns and list-scheduled ends beat builders, with storage options and without") {
    const auto plain = v_problem(6, 24);
    CHECK(objective_of(plain, found_for(plain, 100'000)) < best_built(plain));
    const auto listed = with_options(v_problem(6, 24, 2.6));
    // v-auto searches for each option: seconds, or a minute under the sanitizers.
    CHECK(objective_of(listed, found_for(listed, 100'000)) < best_built(listed, {"v-auto"}));
}

TEST_CASE("a long step repeats the steady state, and the same seed and effort find the same") {
    const auto p = with_options(v_problem(3, 60, 2.6));
    const auto found = found_for(p, 50'000);
    CHECK(found.operations == found_for(p, 50'000).operations);
    const auto load = p.load(rank{0});
    CHECK(objective_of(p, found) < 1.05 * load);
}

TEST_CASE("it applies to v placement with split backwards, and long steps without offloading") {
    const auto applies = [](const problem& p) {
        return any_search_strategy{v_pattern_strategy{}}.traits(p).applicable;
    };
    auto p = v_problem(3, 6);
    CHECK(applies(p));
    CHECK(applies(with_options(p)));
    CHECK(!applies(v_problem(3, 5)));
    p.change_stage(stage{1}, [&](auto& c) { c.transfer = transfer_times{duration{1.0}, duration{1.0}}; });
    CHECK(!applies(p));
    p = v_problem(3, 6);
    p.split_backward = false;
    CHECK(!applies(p));
}
