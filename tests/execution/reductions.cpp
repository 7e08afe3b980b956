// Runs match `simulate_reductions`, and models are told which weight gradient is the last.
#include "optpipe/schedule/time/reductions.hpp"

#include "execution/quick_adaptive.hpp"
#include "execution/trace_run.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::rank;
using optpipe::stage;
using optpipe::testing::tracing_model;
namespace ex = optpipe::execution;

constexpr std::uint64_t first_seed = 5300;
constexpr optpipe::testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 32};
constexpr std::chrono::seconds time_unit{1}; // of virtual time

/// Runs one step on virtual time with these durations of reductions, and compares them with the simulation.
void compare(const optpipe::problem& p, const optpipe::schedule& s, const optpipe::per_stage<duration>& took) {
    const auto programs = lower(p, s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 8, .reduce = true});
    if (!programs) return;
    auto costs = optpipe::testing::planned_costs(p, &s);
    costs.length = [&, planned = costs.length](const optpipe::task_label& what) {
        if (what.kind != optpipe::task_label::task_kind::reduce) return planned(what);
        return optpipe::testing::to_virtual(took[what.op.stage]);
    };
    std::vector<tracing_model> models(p.graph.ranks(), tracing_model{p.graph.stages()});
    const auto ran = trace(
        *programs, costs, [&](rank r) -> auto& { return models[r.position()]; });
    REQUIRE(!ran.failed);

    std::map<stage, ex::task_times> reduced;
    for (const auto& each : ran.times)
        for (std::size_t i = 0; i < each.times.size(); ++i)
            if (const auto& now = each.program->instructions[i]; now.kind == optpipe::instruction_kind::reduce)
                reduced[now.op.stage] = each.times[i];
    const auto planned = simulate_reductions(p, s, took);
    REQUIRE(reduced.size() == planned.reductions.size());
    for (const auto& [at, start, end] : planned.reductions) {
        CHECK(optpipe::clock_time{reduced[at].start} / time_unit == doctest::Approx(start.value()));
        CHECK(optpipe::clock_time{reduced[at].end} / time_unit == doctest::Approx(end.value()));
    }
    const auto measured = reduction_times(ran.times, time_unit);
    for (const stage at : p.graph.all_stages())
        CHECK(measured[at].value() == doctest::Approx(took[at].value()));
}

TEST_CASE("reductions take place when they are simulated to, beside the operations that are left") {
    std::size_t compared = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 40; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        optpipe::per_stage<duration> took(p.graph.stages());
        for (auto& each : took)
            each = duration{static_cast<double>(random.below(12)) / 4.0};
        const auto try_it = [&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) return;
            compare(p, *s, took);
            ++compared;
        };
        try_it(optpipe::gpipe);
        try_it(optpipe::one_forward_one_backward);
        try_it(quick_adaptive);
    }
    CHECK(compared > 60);
}

/// Records its calls.
struct noting_model {
    std::map<stage, std::size_t> weights, last;
    void note(stage s, bool is_last) {
        CHECK(last[s] == 0); // none comes after the last
        ++weights[s];
        last[s] += is_last ? 1 : 0;
    }
    template <class Lane> void forward(Lane&, const ex::forward_task&) {}
    template <class Lane> void backward_input(Lane&, const ex::backward_task& t) { CHECK(!t.is_last); }
    template <class Lane> void backward_weight(Lane&, const ex::weight_task& t) { note(t.stage, t.is_last); }
};
/// A model that runs both halves at once.
struct full_backward_model : noting_model {
    template <class Lane> void backward(Lane&, const ex::backward_task& t) { note(t.stage, t.is_last); }
};

template <class Model> void check_last(const optpipe::problem& p, const optpipe::schedule& s) {
    const auto programs = *lower(p, s, {.bytes_per_unit = 4.0, .message_bytes = 8});
    std::vector<Model> models(p.graph.ranks());
    REQUIRE(!optpipe::testing::trace(
                 programs, {}, [&](rank r) -> auto& { return models[r.position()]; })
                 .failed);
    for (const stage at : p.graph.all_stages()) {
        auto& mine = models[p.rank_of(at).position()];
        CHECK(mine.weights[at] == p.graph.microbatches());
        CHECK(mine.last[at] == 1);
    }
}

TEST_CASE("the last weight gradient of each stage says so, in halves and in full backwards") {
    optpipe::stage_costs each;
    each.forward = each.backward_input = each.backward_weight = duration{1.0};
    each.activation = optpipe::memory_size{1.0};
    const auto problem_on = [&](const auto& shape) {
        return optpipe::problem{to_any_graph(shape), optpipe::per_stage<optpipe::stage_costs>(shape.stages(), each)};
    };
    const auto looped = problem_on(optpipe::graph<2, 4, optpipe::placement::loop<2>>{});
    check_last<full_backward_model>(looped, *build_schedule(looped, optpipe::interleaved));
    const auto line = problem_on(optpipe::graph<3, 4>{});
    check_last<noting_model>(line, *build_schedule(line, optpipe::zero_bubble_h1));
}

TEST_CASE("a model without reductions is refused for a program that has them") {
    const auto p = [] {
        optpipe::stage_costs each;
        each.forward = each.backward_input = each.backward_weight = duration{1.0};
        return optpipe::problem{to_any_graph(optpipe::graph<1, 2>{}),
                                optpipe::per_stage<optpipe::stage_costs>(1, each)};
    }();
    const auto programs = *lower(p, *build_schedule(p, optpipe::gpipe), {.reduce = true});
    noting_model model;
    CHECK_THROWS_WITH(
        static_cast<void>(optpipe::testing::trace(
            programs, {}, [&](rank) -> auto& { return model; })),
        "rank 0, loading its program: a program with reductions, and a model without `void reduce(lane&, stage)`");
}

} // namespace
