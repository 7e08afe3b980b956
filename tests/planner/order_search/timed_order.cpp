// The flat times of an order are those of `simulate`, after any edit.
#include "optpipe/planner/order_search/timed_order.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace {

using namespace optpipe;
using optpipe::detail::timed_order;

constexpr double rounding = 1e-9;
constexpr testing::problem_ranges all_kinds{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 24, .storage_percent = 50, .graph_percent = 90};

/// Moves a random operation, or replaces its B by I and W or the reverse. Two generators with one state make the same
/// edit.
bool edit(timed_order& order, random_numbers& random) {
    const auto from = random.below(order.size());
    const auto to = random.below(order.size());
    const auto& graph = order.graph();
    const auto& p = graph.of();
    if (random.chance(80)) {
        if (from == to) return false;
        return to < from ? order.move_before(from, to) : order.move_behind(from, to);
    }
    const auto op = graph.operation_of(order[from]);
    const bool may_change = p.split_backward && p.full_backward && p.costs[op.stage].gradients == gradient_kind::full;
    if (!may_change) return false;
    const auto cell = graph.cell_of(op.stage, op.microbatch);
    auto chosen = graph.choice(cell);
    const auto gradient = graph.number(backward(op.stage, op.microbatch));
    const auto weight = graph.number(backward_weight(op.stage, op.microbatch));
    order.edit_all([&](auto& all) {
        if (chosen.is_split)
            std::erase(all, weight);
        else
            all.insert(std::find(all.begin(), all.end(), gradient) + 1, weight);
    });
    chosen.is_split = !chosen.is_split;
    order.choose(cell, chosen);
    return true;
}

} // namespace

TEST_CASE("the times of edited orders are those of simulate, and only too long ones are cut off") {
    constexpr std::uint64_t seed = 58;
    CAPTURE(seed);
    random_numbers random{seed};
    std::size_t compared = 0;
    std::size_t refused = 0;
    for (int i = 0; i < 150; ++i) {
        CAPTURE(i);
        const auto p = testing::make_random_problem(random, all_kinds).problem;
        const auto start = simulate(p, optpipe::detail::one_sequence_at_a_time(p));
        if (!start) continue;
        timed_order order{p, 1e-3};
        REQUIRE(order.take(*start));
        CHECK(order.objective() <= objective_of(p, *start).value() * (1.0 + rounding));
        for (int k = 0; k < 60; ++k) {
            CAPTURE(k);
            const auto before = random;
            const auto edit_again = [&] {
                auto same = before;
                REQUIRE(edit(order, same));
            };
            if (!edit(order, random)) continue;
            const auto timed = simulate(p, order.to_order());
            const auto value = order.retime(timed_order::never);
            REQUIRE((value < timed_order::never) == timed.has_value());
            order.undo();
            if (!timed) {
                ++refused;
                continue;
            }
            edit_again();
            CHECK(order.retime(value * (1.0 - rounding)) == timed_order::never);
            order.undo();
            edit_again();
            REQUIRE(order.retime(value * (1.0 + rounding)) == doctest::Approx(value));
            order.keep();
            CHECK(order.objective() == doctest::Approx(objective_of(p, *timed).value()));
            ++compared;
        }
    }
    CHECK(compared > 1000);
    CHECK(refused > 20);
}
