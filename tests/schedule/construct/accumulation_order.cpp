#include "optpipe/schedule/construct/accumulation_order.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace {

using namespace optpipe;

problem three_ranks() {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    return to_problem(make_problem(graph<3, 4>{}, uniform_memory{costs}));
}
/// Exchanges two weight gradients of a stage.
void exchange(schedule& s, stage at, microbatch a, microbatch b) {
    const auto weight_gradient = [&](microbatch of) -> operation& {
        const auto is_wanted = [&](const auto& timed) { return is_same_work(timed.op, backward_weight(at, of)); };
        return std::find_if(s.operations.begin(), s.operations.end(), is_wanted)->op;
    };
    std::swap(weight_gradient(a), weight_gradient(b));
}

} // namespace

TEST_CASE("weight gradients take the order that is asked for, and no time changes") {
    const auto p = three_ranks();
    const auto first = *build_schedule(p, zero_bubble_h1);
    const auto wanted = accumulation_order_of(first);
    for (const auto& own : wanted)
        CHECK(std::is_sorted(own.begin(), own.end()));
    auto other = first;
    exchange(other, stage{2}, microbatch{2}, microbatch{3}); // both have their input gradients at the end
    REQUIRE_FALSE(accumulation_order_of(other)[stage{2}] == wanted[stage{2}]);
    const auto alike = with_accumulation_order(p, other, wanted);
    REQUIRE(alike);
    CHECK(is_valid(p, *alike));
    CHECK(accumulation_order_of(*alike)[stage{2}] == wanted[stage{2}]);
    CHECK(objective_of(p, *alike) == objective_of(p, first));
    CHECK(with_accumulation_order(p, first, wanted)->operations == first.operations);
}

TEST_CASE("weight gradients keep the storage options of their microbatches") {
    auto p = three_ranks();
    for (const stage s : p.graph.all_stages())
        p.storage[s] = {keep_stash(p.costs[s]), {"less", memory_size{0.75}, {}, {}, {}, {}}};
    auto first = *build_schedule(p, zero_bubble_h1);
    for (auto& timed : first.operations)
        timed.op.storage = timed.op.microbatch == microbatch{3} ? 1 : 0;
    REQUIRE(is_valid(p, first));
    auto other = first;
    exchange(other, stage{2}, microbatch{2}, microbatch{3});
    REQUIRE(is_valid(p, other));
    const auto alike = with_accumulation_order(p, other, accumulation_order_of(first));
    REQUIRE(alike);
    CHECK(alike->operations == first.operations);
}

TEST_CASE("an order that a schedule can't have is refused") {
    const auto p = three_ranks();
    const auto split = *build_schedule(p, zero_bubble_h1);
    auto last_first = accumulation_order_of(split);
    std::reverse(last_first[stage{0}].begin(), last_first[stage{0}].end());
    const auto late = with_accumulation_order(p, split, last_first); // the weight gradient before its input gradient
    CHECK_FALSE(late);

    const auto full = *build_schedule(p, one_forward_one_backward);
    auto other = accumulation_order_of(full);
    CHECK(with_accumulation_order(p, full, other));
    const bool is_full = std::any_of(full.operations.begin(), full.operations.end(),
                                     [](const auto& timed) { return timed.op.kind == operation_kind::backward; });
    REQUIRE(is_full);
    std::swap(other[stage{1}][0], other[stage{1}][1]);
    CHECK_FALSE(with_accumulation_order(p, full, other));
}
