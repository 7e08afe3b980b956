#include "optpipe/planner/portfolio/search_state.hpp"

#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

/// Two ranks, the second of which is busy: the first has time to wait for its memory, or to offload for it.
problem busy_behind() {
    auto p = unit_problem(2, 3);
    auto& slow = p.costs[stage{1}];
    slow.forward = slow.backward_input = slow.backward_weight = duration{5.0};
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{1.0}, duration{1.0}}; });
    p.memory_limit[rank{0}] = memory_size{2.0};
    return p;
}
order spelled(const problem& p, std::initializer_list<std::string_view> operations) {
    order result{p.graph, {}};
    for (const auto text : operations)
        result.operations.push_back(*parse_operation(text));
    return result;
}
order waiting(const problem& p) {
    return spelled(p, {"0F0", "1F0", "0F1", "1B0", "0B0", "0F2", "1F1", "1B1", "0B1", "1F2", "1B2", "0B2"});
}
order offloading(const problem& p) {
    return spelled(p, {"0F0", "1F0", "0F1", "0OFFLOAD1", "0F2", "1B0", "0B0", "0RELOAD1", "1F1", "1B1", "0B1", "1F2",
                       "1B2", "0B2"});
}

} // namespace

TEST_CASE("of equal objectives, the schedule with fewer transfers stays, in whatever order they are offered") {
    const auto p = busy_behind();
    for (const bool waits_first : {true, false}) {
        CAPTURE(waits_first);
        search_state state{p};
        const auto first = state.offer(waits_first ? waiting(p) : offloading(p), "first");
        const auto second = state.offer(waits_first ? offloading(p) : waiting(p), "second");
        REQUIRE(first == second);
        CHECK(measure(p, *state.incumbent()).offloads == 0);
        CHECK(state.objective() == first);
        CHECK(state.history().size() == (waits_first ? 1 : 2));
    }
}

TEST_CASE("what is offered is rid of transfers that it doesn't need") {
    auto p = busy_behind();
    p.memory_limit[rank{0}] = memory_size{3.0};
    std::size_t steps = 0;
    search_state watched{p, {}, [&](const search_progress& step) {
                             ++steps;
                             CHECK(measure(p, *step.incumbent).offloads == 0);
                         }};
    const auto value = watched.offer(offloading(p), "offloading");
    CHECK(steps == 1);
    CHECK(watched.objective() <= value);
    CHECK(is_valid(p, *watched.incumbent()));
    // Required ones stay.
    p.memory_limit[rank{0}] = memory_size{2.0};
    search_state tight{p};
    tight.offer(offloading(p), "offloading");
    CHECK(measure(p, *tight.incumbent()).offloads == 1);
}

TEST_CASE("the better schedule stays, in whatever order they are offered") {
    const auto p = unit_problem(4, 8);
    search_state state{p};
    CHECK(state.objective().is_unlimited());
    CHECK(state.incumbent() == nullptr);
    CHECK_FALSE(state.done());

    const auto slow = state.offer(*gpipe(p), "gpipe");
    const auto fast = state.offer(*one_forward_one_backward(p), "1f1b");
    CHECK(state.objective() == std::min(slow, fast));
    state.offer(*gpipe(p), "gpipe again");
    CHECK(state.objective() == std::min(slow, fast));
    CHECK(objective_of(p, *state.incumbent()) == state.objective());
    for (const auto& step : state.history())
        CHECK(step.strategy != "gpipe again");
}

TEST_CASE("bounds only rise, and end the search when they meet the objective") {
    const auto p = unit_problem(2, 4);
    search_state state{p};
    state.offer(*one_forward_one_backward(p), "1f1b");
    state.raise_bound(duration{3.0}, "a");
    state.raise_bound(duration{2.0}, "b");
    CHECK(state.bound() == duration{3.0});
    CHECK_FALSE(state.done());
    state.raise_bound(state.objective(), "c");
    CHECK(state.proven());
    CHECK(state.done());
}

TEST_CASE("what takes long and isn't used says nothing of the tolerance") {
    auto p = unit_problem(2, 4);
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{1e8}, duration{1e8}}; });
    search_state state{p};
    const auto best = state.offer(*one_forward_one_backward(p), "1f1b");
    CHECK(state.slack() <= 1e-6 * best);
    state.raise_bound(0.9 * best, "bound");
    CHECK_FALSE(state.proven());
    CHECK_FALSE(state.done());
    state.raise_bound(best, "bound");
    CHECK(state.proven());
}

TEST_CASE("a gap, a deadline and a stop request end it as well") {
    const auto p = unit_problem(2, 4);
    search_state wide{p, {.gap = 0.9}};
    wide.offer(*one_forward_one_backward(p), "1f1b");
    CHECK_FALSE(wide.done());
    wide.raise_bound(0.5 * wide.objective(), "half");
    CHECK(wide.done());
    CHECK_FALSE(wide.proven());

    const search_state late{p, {.deadline = std::chrono::steady_clock::now()}};
    CHECK(late.done());

    std::stop_source source;
    const search_state asked{p, {.stop = source.get_token()}};
    CHECK_FALSE(asked.done());
    source.request_stop();
    CHECK(asked.done());
}

TEST_CASE("a problem without a schedule is proven by an unlimited bound") {
    search_state state{unit_problem(2, 4)};
    state.raise_bound(duration::unlimited(), "memory");
    CHECK(state.proven());
}

TEST_CASE("threads may offer at once") {
    const auto p = unit_problem(4, 8);
    std::size_t steps = 0;
    search_state state{p, {}, [&](const search_step&) { ++steps; }};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) {
                state.offer(*gpipe(p), "gpipe");
                state.offer(*one_forward_one_backward(p), "1f1b");
                state.raise_bound(duration{static_cast<double>(i % 20)}, "bound");
            }
        });
    for (auto& t : threads)
        t.join();
    CHECK(objective_of(p, *state.incumbent()) == state.objective());
    CHECK(state.history().size() == steps);
    CHECK(state.bound() == duration{19.0});
}
