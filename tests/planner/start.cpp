#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

/// Only the bounds and the start: no builder, no strategy.
plan_options only_start(schedule s) {
    plan_options options;
    for (const auto name : builder_names())
        options.without.emplace_back(name);
    options.start = std::move(s);
    return options;
}

std::string refusal_of(const problem& p, const schedule& start) {
    try {
        static_cast<void>(plan(p, only_start(start), {}));
    } catch (const input_error& e) {
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("a plan begins with the start") {
    const auto p = unit_problem(4, 8);
    const auto start = *build_schedule(p, gpipe);
    const auto made = plan(p, only_start(start), {});
    REQUIRE(made);
    CHECK(made->method == "start");
    CHECK(made->objective == objective_of(p, start));
    CHECK(made->schedule.operations.size() == start.operations.size());
    REQUIRE_FALSE(made->contributions.empty());
    const auto by_start = std::find_if(made->contributions.begin(), made->contributions.end(),
                                       [](const contribution& c) { return c.name == "start"; });
    REQUIRE(by_start != made->contributions.end());
    CHECK(by_start->schedules == 1);
}

TEST_CASE("a plan doesn't move what it needn't") {
    auto p = unit_problem(2, 4);
    p.change_stages([&](auto& c) { c.transfer = transfer_times{duration{0.125}, duration{0.125}}; });
    order moved{p.graph, {}};
    for (const auto& op : one_forward_one_backward(p.graph).operations) {
        const bool first = op.stage == stage{0};
        if (first && is_gradient(op.kind)) moved.operations.push_back(sibling(op, operation_kind::reload));
        moved.operations.push_back(op);
        if (first && op.kind == operation_kind::forward)
            moved.operations.push_back(sibling(op, operation_kind::offload));
    }
    const auto start = *time_order(p, moved);
    const auto made = plan(p, only_start(start), {});
    REQUIRE(made);
    CHECK(measure(p, start).offloads == 4);
    CHECK(measure(p, made->schedule).offloads == 0);
    CHECK(made->objective == objective_of(p, made->schedule));
    CHECK(made->objective <= objective_of(p, start));
    CHECK(is_valid(p, made->schedule));
}

TEST_CASE("what is found is never worse than the start, and builders still run") {
    const auto p = unit_problem(3, 6);
    plan_options options;
    options.start = *build_schedule(p, gpipe);
    const auto made = plan(p, options, {});
    REQUIRE(made);
    CHECK(made->objective < objective_of(p, *options.start));
    CHECK(made->builders.size() > 5);
}

TEST_CASE("a start that was timed for other costs keeps its order and gets new times") {
    const auto before = unit_problem(4, 8);
    auto now = before;
    now.costs[stage{2}].forward = duration{3.0};
    const auto start = *build_schedule(before, one_forward_one_backward);
    CHECK_FALSE(is_valid(now, start));
    const auto made = plan(now, only_start(start), {});
    REQUIRE(made);
    CHECK(is_valid(now, made->schedule));
    CHECK(made->objective == objective_of(now, *time_order(now, order_of(start))));
}

TEST_CASE("a bad start is refused with the reason") {
    const auto p = unit_problem(4, 8);
    const auto good = *build_schedule(p, one_forward_one_backward);
    auto missing = good;
    std::erase_if(missing.operations,
                  [](const timed_operation& t) { return t.op == backward(stage{1}, microbatch{3}); });
    CHECK(refusal_of(p, missing).find("plan options: start: ") == 0);
    CHECK(refusal_of(p, missing).find("1B3") != std::string::npos);

    auto twice = good;
    twice.operations.push_back(twice.operations.back());
    CHECK(refusal_of(p, twice).find("appears twice") != std::string::npos);

    for (const auto& other : {unit_problem(4, 7), unit_problem(2, 8)})
        CHECK(refusal_of(other, good) ==
              "plan options: start: is of another pipeline: with 4 ranks, 4 stages and 8 microbatches");

    auto tight = p;
    tight.memory_limit[rank{0}] = memory_size{2.0};
    CHECK(refusal_of(tight, good).find("rank 0 needs 4 of memory, its limit is 2") != std::string::npos);
    CHECK(refusal_of(p, good).empty());
}

TEST_CASE("a plan of another draw of the microbatches is a start, even if its order doesn't fit as it is") {
    auto p = unit_problem(4, 8);
    const auto draw = [&](std::vector<double> lengths) {
        std::vector<cost_factors> factors;
        for (const double length : lengths)
            factors.push_back({length, length, length, length, length});
        p.microbatches.set_factors(factors);
    };
    draw({0.5, 1.0, 0.5, 0.75, 0.5, 0.5, 2.0, 1.5});
    const auto start = *build_schedule(p, one_forward_one_backward);
    const auto value = objective_of(p, start);
    for (const rank r : p.graph.all_ranks())
        p.memory_limit[r] = measure(p, start).peak_memory[r];
    draw({2.0, 1.5, 0.5, 1.0, 0.5, 0.75, 0.5, 0.5});
    REQUIRE_FALSE(retime(p, start));
    const auto made = plan(p, only_start(start), {});
    REQUIRE(made);
    CHECK(made->method == "start");
    CHECK(is_valid(p, made->schedule));
    // The same lengths as before in another order: the plan follows them.
    CHECK(made->objective.value() <= doctest::Approx(value.value()));
}

TEST_CASE("progress carries the schedule that it reports") {
    const auto p = unit_problem(3, 6);
    plan_options options;
    options.start = *build_schedule(p, gpipe);
    std::vector<search_progress> steps;
    options.progress = [&](const search_progress& step) { steps.push_back(step); };
    const auto made = plan(p, options, {});
    REQUIRE(made);
    REQUIRE(steps.size() == made->history.size());
    bool before_the_first = true;
    for (const auto& step : steps) {
        CHECK(step.objective.is_unlimited() == (step.incumbent == nullptr));
        if (step.incumbent) CHECK(objective_of(p, *step.incumbent) == step.objective);
        CHECK((before_the_first || step.incumbent != nullptr));
        before_the_first = step.incumbent == nullptr;
    }
    REQUIRE(steps.back().incumbent);
    CHECK(steps.back().incumbent->operations.size() == made->schedule.operations.size());
}
