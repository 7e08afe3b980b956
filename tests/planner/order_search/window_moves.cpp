// Edits of windows leave an order whose times are those of `simulate`.
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

/// Edits windows of an order and compares with `simulate`. Returns how many edits were kept.
std::size_t compare(const problem& p, random_numbers& random) {
    std::size_t edits = 0;
    const auto start = simulate(p, optpipe::one_at_a_time(p));
    if (!start) return edits;
    timed_order order{p, 1e-3};
    if (order.flat().memory_delays()) return edits;
    REQUIRE(order.take(*start));
    window_moves windows{p, random};
    for (int k = 0; k < 60; ++k) {
        CAPTURE(k);
        const auto before = order.to_order().operations;
        if (!windows.edit(order, random.below(order.size()))) {
            CHECK(order.to_order().operations == before);
            continue;
        }
        const auto edited = order.to_order();
        const auto timed = simulate(p, edited);
        REQUIRE((order.retime(timed_order::never) < timed_order::never) == timed.has_value());
        if (!timed || random.chance(30)) {
            order.undo();
            CHECK(order.to_order().operations == before);
            continue;
        }
        order.keep();
        CHECK(order.objective() == doctest::Approx(objective_of(p, *timed).value()));
        ++edits;
    }
    return edits;
}

} // namespace

TEST_CASE("windows of random problems") {
    std::size_t edits = 0;
    random_numbers random{7};
    for (int i = 0; i < 150; ++i) {
        CAPTURE(i);
        const auto p =
            oracle::with_random_pairs(random, testing::make_random_problem(random, without_transfers).problem);
        edits += compare(p, random);
    }
    CHECK(edits > 300);
}

TEST_CASE("windows in which all stages and pairs are alike") {
    std::size_t edits = 0;
    random_numbers random{8};
    for (int i = 0; i < 40; ++i) {
        auto p = pair_problem(3, 6, 5.0, i % 2 == 0);
        for (auto& limit : p.memory_limit)
            limit = memory_size{2.0};
        edits += compare(p, random);
    }
    CHECK(edits > 200);
}
