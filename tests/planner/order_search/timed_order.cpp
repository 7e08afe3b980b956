// The flat times of an order are those of `simulate`, after any edit.
#include "optpipe/planner/order_search/timed_order.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using optpipe::detail::timed_order;

constexpr double rounding = 1e-9;
constexpr testing::problem_ranges all_kinds{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 24, .storage_percent = 50, .graph_percent = 90};

/// Exchanges the operations of two cells of one stage, or of all cells of two microbatches. The cells have the same
/// choices.
bool exchange(timed_order& order, random_numbers& random) {
    const auto& flat = order.flat();
    const auto a = flat.microbatch_of(order[random.below(order.size())]);
    const auto b = flat.microbatch_of(order[random.below(order.size())]);
    const auto drawn = flat.stage_of(order[random.below(order.size())]);
    const bool all_stages = random.chance(50);
    const auto is_meant = [&](timed_order::id s) { return all_stages || s == drawn; };
    bool same = a != b;
    for (timed_order::id s = 0; s < flat.stages(); ++s) {
        const auto choice_of = [&](timed_order::id m) {
            return order.cells().choice(flat.cell_of(flat.number(s, operation_kind::forward, m)));
        };
        same = same && (!is_meant(s) || choice_of(a) == choice_of(b));
    }
    if (!same) return false;
    order.edit_all([&](auto& all) {
        for (auto& op : all) {
            const auto m = flat.microbatch_of(op);
            if (is_meant(flat.stage_of(op)) && (m == a || m == b)) op = flat.with_microbatch(op, m == a ? b : a);
        }
    });
    return true;
}

/// Moves a random operation, exchanges microbatches, or replaces a B by I and W or the reverse. Two generators with one
/// state make the same edit.
bool edit(timed_order& order, random_numbers& random) {
    if (order.flat().of().overlaps.empty() && random.chance(15)) return exchange(order, random);
    const auto from = random.below(order.size());
    const auto to = random.below(order.size());
    const auto& flat = order.flat();
    const auto& cells = order.cells();
    const auto& p = flat.of();
    if (random.chance(80)) {
        if (from == to) return false;
        return to < from ? order.move_before(from, to) : order.move_behind(from, to);
    }
    const auto op = cells.operation_of(order[from]);
    const bool is_free = order.partner(flat.number(backward(op.stage, op.microbatch))) < 0;
    const bool may_change =
        is_free && p.split_backward && p.full_backward && p.costs[op.stage].gradients == gradient_kind::full;
    if (!may_change) return false;
    const auto cell = flat.cell_of(op.stage, op.microbatch);
    auto chosen = cells.choice(cell);
    const auto gradient = flat.number(backward(op.stage, op.microbatch));
    const auto weight = flat.number(backward_weight(op.stage, op.microbatch));
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

/// Splits the pair at a random place, or makes a pair of a random operation and another one of its lane.
bool edit_pair(timed_order& order, random_numbers& random) {
    const auto at = order.first_place(random.below(order.size()));
    const auto& flat = order.flat();
    const auto& cells = order.cells();
    const auto op = order[at];
    if (order.partner(op) >= 0) {
        order.split(at, random.chance(50));
        return true;
    }
    const auto other = random.below(order.size());
    const auto second = order[other];
    const bool is_listed = cells.overlap_of(op, second) || cells.overlap_of(second, op);
    if (!is_listed || flat.cell_of(op) == flat.cell_of(second) || order.partner(second) >= 0) return false;
    return order.merge(std::min(at, other), std::max(at, other), random.chance(50));
}
/// An edit of an operation, or of a pair if the problem has pairs.
bool edit_any(timed_order& order, random_numbers& random) {
    const auto& p = order.flat().of();
    if (!p.overlaps.empty() && random.chance(60)) return edit_pair(order, random);
    const auto op = order[random.below(order.size())];
    return order.partner(op) < 0 && edit(order, random);
}

struct counts {
    std::size_t compared = 0;
    std::size_t refused = 0;
    std::size_t with_pairs = 0;
};

/// Compares edited orders of random problems with `simulate`.
counts compare_edits(random_numbers& random, bool with_pairs) {
    counts found;
    for (int i = 0; i < 150; ++i) {
        CAPTURE(i);
        auto p = testing::make_random_problem(random, all_kinds).problem;
        if (with_pairs) p = oracle::with_random_pairs(random, std::move(p));
        const auto start = simulate(p, one_at_a_time(p));
        if (!start) continue;
        timed_order order{p, 1e-3};
        REQUIRE(order.take(*start));
        CHECK(order.objective() <= objective_of(p, *start).value() * (1.0 + rounding));
        for (int k = 0; k < 60; ++k) {
            CAPTURE(k);
            const auto before = random;
            const auto edit_again = [&] {
                auto same = before;
                REQUIRE(edit_any(order, same));
            };
            if (!edit_any(order, random)) continue;
            const auto timed = simulate(p, order.to_order());
            const auto value = order.retime(timed_order::never);
            REQUIRE((value < timed_order::never) == timed.has_value());
            order.undo();
            if (!timed) {
                ++found.refused;
                continue;
            }
            edit_again();
            CHECK(order.retime(value * (1.0 - rounding)) == timed_order::never);
            order.undo();
            edit_again();
            REQUIRE(order.retime(value * (1.0 + rounding)) == doctest::Approx(value));
            order.keep();
            CHECK(order.objective() == doctest::Approx(objective_of(p, *timed).value()));
            ++found.compared;
            found.with_pairs += has_pairs(timed->operations) ? 1 : 0;
            if (k % 8 == 0) REQUIRE(order.take(*timed)); // reads its own pairs again
        }
    }
    return found;
}

} // namespace

TEST_CASE("the times of edited orders are those of simulate, and only too long ones are cut off") {
    constexpr std::uint64_t seed = 58;
    CAPTURE(seed);
    random_numbers random{seed};
    const auto found = compare_edits(random, false);
    CHECK(found.compared > 1000);
    CHECK(found.refused > 20);
}

TEST_CASE("so are the times of orders whose pairs are made and split") {
    constexpr std::uint64_t seed = 59;
    CAPTURE(seed);
    random_numbers random{seed};
    const auto found = compare_edits(random, true);
    CHECK(found.compared > 1000);
    CHECK(found.refused > 20);
    CHECK(found.with_pairs > 150);
}
