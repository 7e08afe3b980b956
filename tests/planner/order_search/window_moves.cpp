// Edits of windows leave an order whose times are those of `simulate`, also above the memory limits.
#include "optpipe/planner/order_search/window_moves.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/order_search/timed_order.hpp"
#include "optpipe/schedule/dispatch/graph_dispatch_search.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace {

using namespace optpipe;
using optpipe::detail::timed_order;
using optpipe::detail::window_moves;

constexpr testing::problem_ranges without_transfers{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 24, .storage_percent = 0, .graph_percent = 60};

problem relaxed(problem p) {
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    return p;
}

struct counts {
    std::size_t edits = 0;
    std::size_t above_limits = 0;
};

/// Edits windows of an order with and without a price of memory above the limits, and compares with `simulate`.
void compare(const problem& p, random_numbers& random, bool is_priced, counts& found) {
    const auto start = simulate(p, optpipe::one_at_a_time(p));
    if (!start) return;
    timed_order order{p, 1e-3};
    if (order.flat().memory_delays()) return;
    REQUIRE(order.take(*start));
    if (is_priced) order.allow_excess(1.0);
    window_moves windows{p, random};
    for (int k = 0; k < 60; ++k) {
        CAPTURE(k);
        const auto before = order.to_order().operations;
        if (!windows.edit(order, random.below(order.size()))) {
            CHECK(order.to_order().operations == before);
            continue;
        }
        const auto edited = order.to_order();
        const bool fits = simulate(p, edited).has_value();
        const auto timed = simulate(is_priced ? relaxed(p) : p, edited);
        REQUIRE((order.retime(timed_order::never) < timed_order::never) == timed.has_value());
        if (!timed || random.chance(30)) {
            order.undo();
            CHECK(order.to_order().operations == before);
            continue;
        }
        order.keep();
        CHECK(order.objective() == doctest::Approx(objective_of(p, *timed).value()));
        CHECK(order.is_within_memory() == fits);
        ++found.edits;
        found.above_limits += fits ? 0 : 1;
    }
}

} // namespace

TEST_CASE("windows of random problems") {
    counts found;
    random_numbers random{7};
    for (int i = 0; i < 150; ++i) {
        CAPTURE(i);
        const auto p =
            oracle::with_random_pairs(random, testing::make_random_problem(random, without_transfers).problem);
        compare(p, random, i % 2 == 0, found);
    }
    CHECK(found.edits > 300);
    CHECK(found.above_limits > 30);
}

TEST_CASE("windows in which all stages and pairs are alike") {
    counts found;
    random_numbers random{8};
    for (const bool is_priced : {false, true})
        for (int i = 0; i < 20; ++i) {
            auto p = pair_problem(3, 6, 5.0, i % 2 == 0);
            for (auto& limit : p.memory_limit)
                limit = memory_size{2.0};
            compare(p, random, is_priced, found);
        }
    CHECK(found.edits > 200);
    CHECK(found.above_limits > 10);
}
