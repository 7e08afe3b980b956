#include "optpipe/planner/board.hpp"

#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"

#include <doctest/doctest.h>

#include <string>
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

} // namespace

TEST_CASE("the better schedule stays, whoever comes first") {
    const auto p = unit_problem(4, 8);
    search_board board{p};
    CHECK(board.objective().is_unlimited());
    CHECK(board.incumbent() == nullptr);
    CHECK_FALSE(board.done());

    const auto slow = board.offer(*gpipe(p), "gpipe");
    const auto fast = board.offer(*one_forward_one_backward(p), "1f1b");
    CHECK(board.objective() == std::min(slow, fast));
    board.offer(*gpipe(p), "gpipe again");
    CHECK(board.objective() == std::min(slow, fast));
    CHECK(objective_of(p, *board.incumbent()) == board.objective());
    for (const auto& step : board.history())
        CHECK(step.part != "gpipe again");
}

TEST_CASE("bounds rise only, and end the search where they meet the objective") {
    const auto p = unit_problem(2, 4);
    search_board board{p};
    board.offer(*one_forward_one_backward(p), "1f1b");
    board.raise_bound(duration{3.0}, "a");
    board.raise_bound(duration{2.0}, "b");
    CHECK(board.bound() == duration{3.0});
    CHECK_FALSE(board.done());
    board.raise_bound(board.objective(), "c");
    CHECK(board.proven());
    CHECK(board.done());
}

TEST_CASE("a gap, a deadline and a stop request end it as well") {
    const auto p = unit_problem(2, 4);
    search_board wide{p, {.gap = 0.9}};
    wide.offer(*one_forward_one_backward(p), "1f1b");
    CHECK_FALSE(wide.done());
    wide.raise_bound(0.5 * wide.objective(), "half");
    CHECK(wide.done());
    CHECK_FALSE(wide.proven());

    const search_board late{p, {.deadline = std::chrono::steady_clock::now()}};
    CHECK(late.done());

    std::stop_source source;
    const search_board asked{p, {.stop = source.get_token()}};
    CHECK_FALSE(asked.done());
    source.request_stop();
    CHECK(asked.done());
}

TEST_CASE("a problem without a schedule is proven by an unlimited bound") {
    search_board board{unit_problem(2, 4)};
    board.raise_bound(duration::unlimited(), "memory");
    CHECK(board.proven());
}

TEST_CASE("threads may offer at once") {
    const auto p = unit_problem(4, 8);
    std::size_t steps = 0;
    search_board board{p, {}, [&](const search_step&) { ++steps; }};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) {
                board.offer(*gpipe(p), "gpipe");
                board.offer(*one_forward_one_backward(p), "1f1b");
                board.raise_bound(duration{static_cast<double>(i % 20)}, "bound");
            }
        });
    for (auto& t : threads)
        t.join();
    CHECK(objective_of(p, *board.incumbent()) == board.objective());
    CHECK(board.history().size() == steps);
    CHECK(board.bound() == duration{19.0});
}
