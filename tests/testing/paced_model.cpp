#include "optpipe/testing/paced_model.hpp"

#include "archetypes/executor.hpp"
#include "execution/quick_adaptive.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

using testing::paced_model;
using testing::tracing_model;
using lane = testing::archetype::lane;

/// A model that records its calls.
struct noting_model {
    std::string* notes;
    template <class Lane> void forward(Lane&, const execution::forward_task&) { *notes += 'F'; }
    template <class Lane> void backward_input(Lane&, const execution::backward_task&) { *notes += 'I'; }
    template <class Lane> void backward_weight(Lane&, const execution::weight_task&) { *notes += 'W'; }
    template <class Lane> void backward(Lane&, const execution::backward_task&) { *notes += 'B'; }
};

/// The same, with recomputation.
struct recomputing_model : noting_model {
    template <class Lane> void recompute(Lane&, const execution::recompute_task&) {
        *notes += 'R';
    }
};

// A paced model has the operations of its model, and no others.
static_assert(execution::stage_model<paced_model<tracing_model>, lane>);
static_assert(execution::has_update<paced_model<tracing_model>, lane>);
static_assert(!execution::has_backward<paced_model<tracing_model>, lane>);
static_assert(execution::has_backward<paced_model<noting_model>, lane>);
static_assert(!execution::has_update<paced_model<noting_model>, lane>);
static_assert(execution::has_recompute<paced_model<recomputing_model>, lane>);
static_assert(!execution::has_recompute<paced_model<noting_model>, lane>);
static_assert(execution::has_overlap<paced_model<tracing_model>, lane>);
static_assert(!execution::has_overlap<paced_model<noting_model>, lane>);

/// F takes 2, I 3, W 1, transfers 1, a message 0.5.
problem two_ranks() {
    const stage_costs c{duration{2},    duration{3},    duration{1},
                        memory_size{2}, memory_size{1}, transfer_times{duration{1}, duration{1}}};
    auto p = to_problem(make_problem(graph<2, 3>{}, uniform_memory{c}, memory_size{3}));
    p.p2p = hop_times<>{duration{0.5}};
    return p;
}

} // namespace

TEST_CASE("every call reaches the model, and none is over before its time") {
    const auto p = two_ranks();
    std::string notes;
    struct any_lane {
    } on;
    for (const auto spin : {0us, 400us, 10'000us}) {
        paced_model<noting_model> model{{&notes}, p, 200us, spin};
        const auto lasts_at_least = [&](std::chrono::nanoseconds least, const auto& call) {
            const auto start = std::chrono::steady_clock::now();
            call();
            CHECK(std::chrono::steady_clock::now() - start >= least);
        };
        lasts_at_least(400us, [&] { model.forward(on, {}); });
        lasts_at_least(600us, [&] { model.backward_input(on, {}); });
        lasts_at_least(200us, [&] { model.backward_weight(on, {}); });
        lasts_at_least(800us, [&] { model.backward(on, {}); });
    }
    CHECK(notes == "FIWBFIWBFIWB");
}

TEST_CASE("storage options tell how long recomputations and backwards take") {
    std::string notes;
    struct any_lane {
    } on;
    auto p = two_ranks();
    const auto a = p.costs[stage{0}].activation;
    p.set_stage(stage{0}, p.costs[stage{0}]);
    p.storage[stage{0}].push_back({"ahead", 0.5 * a, duration{4}, {}, {}, {}});
    p.storage[stage{0}].push_back({"inside", 0.5 * a, {}, duration{2}, {}, {}});
    paced_model<recomputing_model> model{{{&notes}}, p, 2ms};
    const auto lasts_at_least = [&](std::chrono::nanoseconds least, const auto& call) {
        const auto start = std::chrono::steady_clock::now();
        call();
        CHECK(std::chrono::steady_clock::now() - start >= least);
    };
    lasts_at_least(8ms, [&] { model.recompute(on, {.storage = 1}); });
    lasts_at_least(6ms, [&] { model.backward_input(on, {.storage = 1}); });
    lasts_at_least(10ms, [&] { model.backward_input(on, {.storage = 2}); });
    lasts_at_least(12ms, [&] { model.backward(on, {.storage = 2}); });
    CHECK(notes == "RIIB");
}

TEST_CASE("a plan is played through on threads") {
    const auto p = two_ranks();
    const auto planned = *build_schedule(p, quick_adaptive);
    const auto programs = *lower(p, planned, {.bytes_per_unit = 64.0, .message_bytes = 8, .update = true});
    constexpr clock_time unit = 300us;
    threads::options how;
    how.copies = threads::planned_copies(p, unit);
    how.messages = threads::planned_messages(p, unit);
    how.transfer = p.transfer;
    how.record_times = true;
    threads::cluster ranks{2, how};
    std::vector<paced_model<tracing_model>> models(2, {tracing_model{2}, p, unit});
    const auto times = threads::run(
        programs, ranks, [&](rank r) -> auto& { return models[r.position()]; });
    for (const auto& each : models) {
        CHECK(each.model().weights() == 3);
        CHECK(each.model().updates() == 1);
    }
    // Nothing is faster than planned; measured times may be half a nanosecond short.
    const auto slack = duration{1e-3};
    const auto measured = measured_schedule(p.graph, times, unit);
    CHECK(objective_of(p, measured) >= objective_of(p, planned) - slack);
    for (const auto& timed : measured.operations)
        CHECK(timed.end - timed.start >= duration_of(p, timed.op) - slack);
    CHECK(compare_messages(p, times, unit).mean() >= -slack);
}
