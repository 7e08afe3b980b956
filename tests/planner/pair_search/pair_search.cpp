#include "optpipe/planner/pair_search/pair_search.hpp"

#include "optpipe/planner/strategies/pair_strategy.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/construct/distinct_pairs.hpp"
#include "optpipe/schedule/construct/serial_order.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

/// DualPipeV holds five stashes of two ranks' stages; there is memory for less.
problem tight_problem() {
    auto p = pair_problem(2, 8, 4.0, true);
    for (auto& limit : p.memory_limit)
        limit = memory_size{4.0};
    return p;
}

} // namespace

TEST_CASE("schedules planned for more memory come within the limits") {
    const auto p = tight_problem();
    REQUIRE_FALSE(build_schedule(p, dual_pipe_v));
    search_state state{p};
    pair_search(state, {.seed = 1, .moves = 40'000}, "pairs");
    const auto found = state.incumbent();
    REQUIRE(found);
    CHECK(is_valid(p, *found));
    CHECK(most_distinct_pairs(*found) > 0);
    // Without pairs, a rank works 48.
    CHECK(state.objective().value() < 48.0);
}

TEST_CASE("the same seed and moves find the same schedule") {
    const auto p = tight_problem();
    search_state one{p};
    search_state other{p};
    for (auto* state : {&one, &other})
        pair_search(*state, {.seed = 3, .moves = 10'000}, "pairs");
    REQUIRE(one.incumbent());
    CHECK(one.objective() == other.objective());
    CHECK(one.incumbent()->operations == other.incumbent()->operations);
}

TEST_CASE("no rank has more distinct pairs than the limit") {
    for (const std::size_t most : {0U, 1U}) {
        search_limits limits;
        limits.most_distinct_pairs = most;
        search_state state{tight_problem(), limits};
        pair_search(state, {.seed = 1, .moves = 20'000}, "pairs");
        order_search(state, {.seed = 1, .moves = 20'000, .most_distinct_pairs = most}, "order");
        REQUIRE(state.incumbent());
        CHECK(most_distinct_pairs(*state.incumbent()) == most);
        // One that has more is offered without its other pairs.
        auto ample = tight_problem();
        for (auto& limit : ample.memory_limit)
            limit = memory_size::unlimited();
        search_state other{ample, limits};
        other.offer(*dual_pipe_v(ample), "dualpipe-v");
        REQUIRE(other.incumbent());
        CHECK(most_distinct_pairs(*other.incumbent()) == most);
    }
}

TEST_CASE("the search also starts from the incumbent") {
    const auto p = tight_problem();
    search_state state{p};
    state.offer(one_at_a_time(p), "serial");
    const auto serial = state.incumbent();
    pair_search(state, {.seed = 1, .moves = 1}, "pairs");
    const auto shared = state.shared<detail::pair_search_state>();
    REQUIRE(shared->has_incumbent);
    CHECK(order_of(shared->starts.back().made).operations == order_of(*serial).operations);
    // A better incumbent takes its place.
    state.offer(*adaptive(p), "adaptive");
    const auto better = state.objective();
    REQUIRE(better < objective_of(p, *serial));
    pair_search(state, {.seed = 2, .moves = 1}, "pairs");
    CHECK(objective_of(p, shared->starts.back().made).value() == doctest::Approx(better.value()));
}

TEST_CASE("storage options that offload have no place in the problem without them") {
    auto p = tight_problem();
    for (const stage s : p.graph.all_stages()) {
        auto offloaded = keep_stash(p.costs[s]);
        offloaded.name = "offload";
        offloaded.transfer_size = memory_size{1.0};
        offloaded.transfer = {duration{1.0}, duration{1.0}};
        auto small = keep_stash(p.costs[s]);
        small.name = "small";
        small.held = memory_size{0.25};
        p.set_storage(s, std::vector<storage_option>{offloaded, keep_stash(p.costs[s]), small});
    }
    const detail::problem_without_offloads without{p};
    order of{p.graph, {forward(stage{0}, microbatch{0})}};
    CHECK_FALSE(without.reduced(of));
    of.operations.front().storage = 2;
    const auto reduced = without.reduced(of);
    REQUIRE(reduced);
    CHECK(reduced->operations.front().storage == 1);
    CHECK(without.original(*reduced).operations == of.operations);
}

TEST_CASE("with storage options, stashes are stored so that they fit") {
    auto p = tight_problem();
    for (auto& limit : p.memory_limit)
        limit = memory_size{2.5};
    for (const stage s : p.graph.all_stages()) {
        auto small = keep_stash(p.costs[s]);
        small.name = "small";
        small.held = memory_size{0.25};
        small.recompute = duration{0.25};
        p.set_storage(s, std::vector<storage_option>{keep_stash(p.costs[s]), small});
    }
    search_state state{p};
    pair_search(state, {.seed = 1, .moves = 40'000}, "pairs");
    const auto found = state.incumbent();
    REQUIRE(found);
    CHECK(is_valid(p, *found));
    CHECK(std::any_of(found->operations.begin(), found->operations.end(),
                      [](const timed_operation& each) { return each.op.kind == operation_kind::recompute; }));
}

TEST_CASE("the strategy is for problems with pairs") {
    auto p = tight_problem();
    CHECK(pair_strategy::traits(p).applicable);
    p.overlaps = {};
    CHECK_FALSE(pair_strategy::traits(p).applicable);
}
