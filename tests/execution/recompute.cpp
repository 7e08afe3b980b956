// A stage that makes again, right before its backward, what its forward didn't stash: from the program to the run.
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "optpipe/testing/trace_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

using testing::tracing_model;

constexpr std::uint64_t first_seed = 6400;
constexpr testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 5, .cells = 24};
constexpr double bytes_per_unit = 4.0;

std::string all_of(const std::vector<violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}

std::vector<stage> every_stage(const problem& p) {
    std::vector<stage> all;
    for (const stage s : p.graph.all_stages())
        all.push_back(s);
    return all;
}

/// Two ranks. F stashes 1 and I makes it 3, of which its first half is the forward once more; a trip takes 1.
problem two_ranks(double limit) {
    const stage_costs c{duration{1},    duration{2},    duration{1},
                        memory_size{1}, memory_size{3}, transfer_times{duration{1}, duration{1}}};
    auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{c}, memory_size{limit}));
    p.p2p = hop_times<>{duration{0.5}};
    return p;
}
lowering_options options_for(const problem& p) {
    return {.bytes_per_unit = bytes_per_unit, .message_bytes = 16, .recompute = every_stage(p)};
}

const instruction* before_on_lane(const rank_program& p, std::size_t at) {
    for (std::size_t i = at; i-- > 0;)
        if (p.instructions[i].lane == p.instructions[at].lane) return &p.instructions[i];
    return nullptr;
}
std::size_t recomputations_in(const rank_program& p) {
    return static_cast<std::size_t>(
        std::count_if(p.instructions.begin(), p.instructions.end(),
                      [](const instruction& i) { return i.kind == instruction_kind::recompute; }));
}

/// What a stage costs by the trace, where the recomputation is as long as the forward and a part of the backward.
testing::trace_costs costs_with_recomputation(const problem& p, const schedule& s) {
    auto costs = testing::planned_costs(p, &s);
    costs.length = [p](const task_label& what) {
        const auto again = testing::to_virtual(p.costs[what.op.stage].forward);
        if (what.kind == task_label::task_kind::recompute) return again;
        if (what.kind != task_label::task_kind::operation) return testing::virtual_time{};
        const auto whole = testing::to_virtual(duration_of(p, what.op));
        return is_gradient(what.op.kind) ? whole - again : whole;
    };
    // The backward starts once the recomputation is over, which starts when the plan has the backward.
    costs.not_before = [inner = costs.not_before, p](const task_label& what) {
        if (what.kind != task_label::task_kind::recompute) return inner(what);
        return inner({task_label::task_kind::operation, backward_input(what.op.stage, what.op.microbatch), {}});
    };
    return costs;
}

/// Has all that a model needs, and no `recompute`.
struct forgetful {
    template <class Lane> void forward(Lane&, const execution::forward_task&) {}
    template <class Lane> void backward_input(Lane&, const execution::backward_task&) {}
    template <class Lane> void backward_weight(Lane&, const execution::weight_task&) {}
};

} // namespace

TEST_CASE("recomputations of random schedules stand before their backwards, and pass the check") {
    std::size_t programs_seen = 0;
    std::size_t refused = 0;
    std::size_t larger = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 30; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random, ranges).problem;
        const auto try_it = [&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) return;
            const auto programs = lower(p, *s, options_for(p));
            if (!programs) {
                ++refused;
                return;
            }
            CHECK(all_of(check_programs(*programs)) == "");
            std::vector<tracing_model> models(p.graph.ranks(), tracing_model{p.graph.stages()});
            const auto result = testing::trace(
                *programs, testing::planned_costs(p), [&](rank r) -> auto& { return models[r.position()]; });
            CHECK(!result.failed.has_value());
            const auto planned = measure(p, *s);
            for (const auto& each : *programs) {
                ++programs_seen;
                const auto own = each.instructions.size();
                for (std::size_t i = 0; i < own; ++i) {
                    const auto& now = each.instructions[i];
                    if (now.kind != instruction_kind::compute || !is_gradient(now.op.kind)) continue;
                    const auto* before = before_on_lane(each, i);
                    REQUIRE(before != nullptr);
                    CHECK(before->kind == instruction_kind::recompute);
                    CHECK(before->op == forward(now.op.stage, now.op.microbatch));
                }
                CHECK(models[each.self.position()].recomputations() == recomputations_in(each));
                const auto peak =
                    static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[each.self].value()));
                const bool only_split = std::none_of(s->operations.begin(), s->operations.end(), [](const auto& t) {
                    return t.op.kind == operation_kind::backward;
                });
                CHECK(each.device_bytes >= peak);
                if (only_split) CHECK(each.device_bytes == peak);
                larger += each.device_bytes > peak ? 1 : 0;
            }
        };
        try_it(gpipe);
        try_it(one_forward_one_backward);
        try_it(zero_bubble_h1);
        try_it(adaptive);
    }
    MESSAGE(programs_seen << " programs, " << larger << " need more for full backwards, " << refused << " don't fit");
    CHECK(programs_seen > 70);
}

TEST_CASE("a recomputation is part of the backward: it takes its time and its memory") {
    const auto p = two_ranks(100.0);
    const auto s = *build_schedule(p, zero_bubble_h1);
    REQUIRE(measure(p, s).peak_memory[rank{0}] > memory_size{3});
    const auto programs = *lower(p, s, options_for(p));
    std::vector<tracing_model> models(2, tracing_model{2});
    const auto result = testing::trace(
        programs, costs_with_recomputation(p, s), [&](rank r) -> auto& { return models[r.position()]; });
    REQUIRE(!result.failed.has_value());
    using namespace std::chrono_literals;
    const auto measured = measured_schedule(p.graph, result.times, 1s);
    CHECK(measurement_violations(s, measured).empty());
    for (const auto& d : compare_kinds(s, measured)) {
        CHECK(d.worst.value() == doctest::Approx(0.0));
        CHECK(d.latest.value() == doctest::Approx(0.0));
    }
    for (const auto& each : result.times) {
        CHECK(models[each.program->self.position()].recomputations() == 4);
        CHECK(high_water(each, memory_arena::device) == each.program->device_bytes);
    }
}

TEST_CASE("what a full backward recomputes comes on top of the plan, within the limit") {
    auto p = two_ranks(100.0);
    p.split_backward = false;
    const auto s = *build_schedule(p, gpipe);
    const auto planned = measure(p, s).peak_memory[rank{0}];
    REQUIRE(planned == memory_size{4}); // four stashes of 1
    const auto programs = lower(p, s, options_for(p));
    REQUIRE(programs);
    CHECK((*programs)[rank{0}].device_bytes == static_cast<std::size_t>(bytes_per_unit * (4.0 + 2.0)));
    CHECK((*lower(p, s, {.bytes_per_unit = bytes_per_unit}))[rank{0}].device_bytes ==
          static_cast<std::size_t>(bytes_per_unit * 4.0));
    CHECK(all_of(check_programs(*programs)) == "");
    p.memory_limit[rank{0}] = memory_size{5};
    const auto refused = lower(p, s, options_for(p));
    REQUIRE_FALSE(refused);
    CHECK(describe(refused.why()) == "rank 0 needs 6 of memory, its limit is 5");
    p.memory_limit[rank{0}] = memory_size{6};
    CHECK(lower(p, s, options_for(p)));
}

TEST_CASE("only the stages that are named recompute, and the plan is kept to on threads") {
    const auto p = two_ranks(100.0);
    auto options = options_for(p);
    options.recompute = {stage{1}};
    const auto programs = *lower(p, *build_schedule(p, zero_bubble_h1), options);
    CHECK(recomputations_in(programs[rank{0}]) == 0);
    CHECK(recomputations_in(programs[rank{1}]) == 4);
    threads::cluster ranks{2};
    std::vector<tracing_model> models(2, tracing_model{2});
    threads::run(
        programs, ranks, [&](rank r) -> auto& { return models[r.position()]; }, 3);
    CHECK(models[0].recomputations() == 0);
    CHECK(models[1].recomputations() == 12);
}

TEST_CASE("a model that can't recompute is refused when its program is loaded") {
    static_assert(!execution::has_recompute<forgetful, threads::lane>);
    static_assert(execution::has_recompute<tracing_model, threads::lane>);
    const auto p = two_ranks(100.0);
    const auto programs = *lower(p, *build_schedule(p, zero_bubble_h1), options_for(p));
    threads::cluster ranks{2};
    std::vector<forgetful> models(2);
    CHECK_THROWS_WITH_AS(threads::run(
                             programs, ranks, [&](rank r) -> auto& { return models[r.position()]; }),
                         doctest::Contains("void recompute(lane&, const recompute_task&)"), error);
}
