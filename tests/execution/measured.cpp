#include "optpipe/execution/measured.hpp"

#include "execution/quick_adaptive.hpp"
#include "execution/trace_run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/profile/measured_costs.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

/// Two ranks whose activations are offloaded in 0.5, room for one and a half stashes.
problem two_ranks() {
    const stage_costs c{duration{2},    duration{2},    duration{1},
                        memory_size{2}, memory_size{1}, transfer_times{duration{1}, duration{1}}};
    auto p = to_problem(make_problem(graph<2, 4>{}, uniform_memory{c}, memory_size{3}));
    p.p2p = hop_times<>{duration{0.5}};
    return p;
}

/// A plan that ran on virtual time, in which a unit is a second.
struct traced {
    problem p = two_ranks();
    schedule planned = *build_schedule(p, quick_adaptive);
    per_rank<rank_program> programs = *lower(p, planned, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 8});
    std::vector<rank_times> times;

    traced() {
        std::vector<testing::tracing_model> models(2, testing::tracing_model{p.graph.stages()});
        auto result = testing::trace(
            programs, testing::planned_costs(p, &planned), [&](rank r) -> auto& { return models[r.position()]; });
        times = std::move(result.times);
    }
    /// Calls `change(times)` for all instructions of this kind.
    template <class Change> void change(instruction_kind kind, const Change& change) {
        for (auto& each : times)
            for (std::size_t i = 0; i < each.times.size(); ++i)
                if (each.program->instructions[i].kind == kind) change(each.times[i]);
    }
};

} // namespace

TEST_CASE("a run that keeps to its plan measures the plan") {
    const traced run;
    const auto measured = measured_schedule(run.p.graph, run.times, 1s);
    CHECK(measurement_violations(run.planned, measured).empty());
    CHECK(objective_of(run.p, measured).value() == doctest::Approx(objective_of(run.p, run.planned).value()));
    for (const auto& d : compare_kinds(run.planned, measured)) {
        CHECK(d.worst.value() == doctest::Approx(0.0));
        CHECK(d.latest.value() == doctest::Approx(0.0));
    }
    for (const auto& each : run.times)
        CHECK(high_water(each, memory_arena::device) == each.program->device_bytes);
}

TEST_CASE("a unit of time may be a fraction of a nanosecond") {
    const traced run;
    const auto in_seconds = measured_schedule(run.p.graph, run.times, 1s);
    const auto fine = measured_schedule(run.p.graph, run.times, clock_time{0.25});
    CHECK(last_end(fine).value() == doctest::Approx(4e9 * last_end(in_seconds).value()));
    CHECK(on_clock(duration{6}, clock_time{0.25}) == 1ns);
    CHECK(on_clock(duration{1.5}, 1s) == 1500ms);
}

TEST_CASE("a step begins with its first operation, not with a rank that waits for a message") {
    traced run;
    const auto before = last_end(measured_schedule(run.p.graph, run.times, 1s));
    run.change(instruction_kind::exchange, [](auto& when) { when.start -= 100s; });
    CHECK(last_end(measured_schedule(run.p.graph, run.times, 1s)) == before);
    run.change(instruction_kind::compute, [](auto& when) { when.start += 7s, when.end += 7s; });
    run.change(instruction_kind::copy, [](auto& when) { when.start += 7s, when.end += 7s; });
    CHECK(last_end(measured_schedule(run.p.graph, run.times, 1s)) == before);
}

TEST_CASE("messages are measured from when both ends are there") {
    traced run;
    const auto as_planned = compare_messages(run.p, run.times, 1s);
    CHECK(as_planned.count == 8); // four activations, four gradients
    CHECK(as_planned.planned.value() == doctest::Approx(4.0));
    CHECK(as_planned.measured.value() == doctest::Approx(4.0));
    CHECK(as_planned.worst.value() == doctest::Approx(0.0));
    run.change(instruction_kind::exchange, [](auto& when) { when.end += 250ms; });
    const auto slower = compare_messages(run.p, run.times, 1s);
    CHECK(slower.mean().value() == doctest::Approx(0.25));
    CHECK(slower.worst.value() == doctest::Approx(0.25));
    CHECK(compare_messages(run.p, {}, 1s).count == 0);
}

TEST_CASE("a profile of measured ranks, together or one by one, gives the planned costs back") {
    const traced run;
    cost_profile all;
    add_step(all, run.p, 0, run.times, 1s, 4.0);
    const auto now = with_measured_costs(run.p, all);
    for (const stage s : run.p.graph.all_stages()) {
        CHECK(now.costs[s].forward.value() == doctest::Approx(2.0));
        CHECK(now.costs[s].backward().value() == doctest::Approx(3.0));
    }
    CHECK(now.p2p(rank{0}, rank{1}).value() == doctest::Approx(0.5));
    CHECK(now.p2p(rank{1}, rank{0}).value() == doctest::Approx(0.5));
    REQUIRE(all.peaks().size() == 2);
    CHECK(all.peaks().at(rank{0}).device == memory_size{3.0});

    cost_profile one_by_one;
    for (const auto& each : run.times)
        add_step(one_by_one, run.p, 0, std::span{&each, 1}, 1s, 4.0);
    CHECK(one_by_one.steps() == 1);
    CHECK(one_by_one.messages().empty());
    CHECK(one_by_one.peaks() == all.peaks());
    CHECK(one_by_one.operations().size() == all.operations().size());
}

TEST_CASE("of a run that wasn't measured nothing is known, not even its memory") {
    traced run;
    for (auto& each : run.times)
        each.times.clear();
    CHECK(measured_schedule(run.p.graph, run.times, 1s).operations.empty());
    for (const auto& each : run.times)
        CHECK(high_water(each, memory_arena::device) == 0);
    cost_profile profile;
    add_step(profile, run.p, 0, run.times, 1s, 4.0);
    CHECK(profile.operations().empty());
    CHECK(profile.peaks().empty());
}
